"""What a notebook shows of results and errors."""

from operator import methodcaller

import pytest

import hostcore
from hostcore import RunResult
from hostcore.errors import Errors
from hostcore.notebook import errors_in_plain_words
from hostcore.plugins.errors import PluginError
from hostcore.runs.result import RunWarning
from hostcore.secrets.scrub import HIDDEN, forget_all, remember
from hostcore_hookspecs import HostcoreError
from hostcore_hookspecs.errors import RunError

#: What notebooks call: how a value, and an error, are shown.
html, lines = methodcaller("_repr_html_"), methodcaller("_render_traceback_")


def result(**fields: object) -> RunResult:
    known = {"run_id": "first", "status": "succeeded", "exit_code": 0, "attempt": 2, "step": 96, "epoch": 1}
    return RunResult(**{**known, "started_ms": 1000, "ended_ms": 3500, **fields})  # type: ignore[arg-type]


def test_a_result_is_a_table_of_what_is_known() -> None:
    shown = html(
        result(
            metrics={"train/loss": 0.123456, "noise": None},
            best={"metric": "val/loss", "value": 0.25, "step": 64},
            final_checkpoint="checkpoints/step-000096",
        )
    )
    assert shown.startswith("<table><caption>first</caption><tr><th>status</th><td>succeeded</td></tr>")
    for name, text in {
        "step": "96, of attempt 2, in 2.5 s",
        "train/loss": "0.1235",
        "noise": "not finite",
        "best": "val/loss 0.25 at step 64",
        "checkpoint": "checkpoints/step-000096",
    }.items():
        assert f"<tr><th>{name}</th><td>{text}</td></tr>" in shown
    assert "error" not in shown
    assert "<pre>" not in shown


def test_a_failed_result_shows_the_error_its_hint_and_the_traceback_of_the_plugin() -> None:
    error = RunError(
        type="ValueError", message="too hot", plugin="oven (o 1.0)", hint="wait", traceback="line 1\nline 2"
    )
    warning = RunWarning(code="metrics.nonfinite", message="noise was not finite")
    shown = html(result(status="failed", reason="it ended", error=error, warnings=(warning,)))
    for name, text in {
        "status": "failed: it ended",
        "error": "oven (o 1.0): ValueError: too hot",
        "hint": "wait",
        "warnings": "noise was not finite",
    }.items():
        assert f"<tr><th>{name}</th><td>{text}</td></tr>" in shown
    assert shown.endswith("<pre>line 1<br>line 2</pre>")


def test_what_jobs_and_plugins_say_is_text_and_no_html() -> None:
    error = RunError(type="Oops", message="<script>alert(1)</script>\x1b[2J", traceback="<b>")
    shown = html(result(run_id="<i>", status="failed", error=error, metrics={"<u>": 1.0}))
    assert [part for part in ("<script>", "<b>", "<i>", "<u>", "\x1b") if part in shown] == []
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J" in shown


def shown(error: HostcoreError) -> list[str]:
    with pytest.raises(HostcoreError) as raised, errors_in_plain_words():
        raise error
    return lines(raised.value)


def test_an_invalid_job_is_shown_without_the_traceback_of_the_host() -> None:
    errors = Errors(
        [HostcoreError("no such key", pointer="/epoch", hint="did you mean epochs?"), HostcoreError("no such trainer")]
    )
    assert shown(errors) == ["no such key\n      at: /epoch\n    hint: did you mean epochs?", "no such trainer"]


def test_the_traceback_of_a_plugin_is_shown_and_a_secret_is_not() -> None:
    remember("pass-word")
    error = PluginError("x fails to import pass-word", traceback="Traceback …\nImportError: no y\n")
    assert shown(error) == [f"x fails to import {HIDDEN}", "Traceback …\nImportError: no y"]
    forget_all()


def test_an_error_of_any_class_is_shown_so_by_what_notebooks_call() -> None:
    with pytest.raises(HostcoreError) as raised:
        hostcore.run(
            {"trainer": "line:Trainer", "max_steps": 3, "devices": ["cpu", "cpu"], "dataset": {"source": "mock"}}
        )
    (text,) = lines(raised.value)
    assert text.startswith("a run in this process has one rank, and the job asks for 2: cpu, cpu\n      at: /devices\n")
