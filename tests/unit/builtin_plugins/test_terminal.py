import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import orjson
import pexpect
import pytest
from hostile_text import HOSTILE, TITLE_SHOWN, orders_in

from hostcore_builtin_plugins.terminal import TerminalReporter
from hostcore_hookspecs import Event, FatalError, Job, ReporterContext, events
from hostcore_hookspecs.events import (
    BatchSplit,
    CheckpointSaved,
    Metrics,
    Progress,
    RunCancelled,
    RunError,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSubmitted,
    RunSucceeded,
    SampleSaved,
    StopRequested,
    Validation,
    Warning,
)

MakeEvent = Callable[..., Event]
Lines = Callable[..., list[str]]
CONTEXT = ReporterContext(run_id="flights-1", attempt=1, job=Job(run_id="flights-1"), run_dir="/runs/flights-1")


@pytest.fixture
def lines(event: MakeEvent, monkeypatch: pytest.MonkeyPatch) -> Lines:
    """``lines((payload, step), every=1)``: the lines that events are told in, so many seconds after each other."""

    def told(*payloads: tuple[Any, int | None], every: float = 0.0, **context: Any) -> list[str]:
        stream, now = io.StringIO(), 0.0
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            reporter = TerminalReporter(settings=TerminalReporter.Settings(every_seconds=5), clock=lambda: now)
            reporter.open(attrs.evolve(CONTEXT, **context))
            for payload, step in payloads:
                now += every
                told = payload if isinstance(payload, Event) else event(payload, step=step, seconds=now)
                reporter.report_event(told)
            reporter.close()
        assert all(line.startswith("flights-1 ") for line in stream.getvalue().splitlines())
        return [line.removeprefix("flights-1 ") for line in stream.getvalue().splitlines()]

    return told


def metrics(loss: float | None = 0.43211, rate: float = 12345.4) -> Metrics:
    nonfinite = ("train/loss",) if loss is None else ()
    return Metrics(metrics={"train/loss": loss}, nonfinite=nonfinite, samples_per_second=rate)


def validation(loss: float | None) -> Validation:
    return Validation(metrics={"val/loss": loss, "val/mae": loss}, weight=10.0)


def test_a_line_has_run_step_loss_rate_and_remaining_time(lines: Lines) -> None:
    submitted = RunSubmitted(trainer="t", max_steps=1000, total_steps=1000)
    told = lines((submitted, None), (RunStarted(device="cpu"), 0), (metrics(), 340), every=21.636)
    assert told == ["step 340/1000 loss 0.4321 12,345 samples/s eta 0:42"]
    (line,) = lines((metrics(loss=None), 1))
    assert "loss nan" in line and "not finite: train/loss" in line


def test_lines_come_every_few_seconds_and_for_the_first_metrics_and_the_end(lines: Lines) -> None:
    told = lines(*((metrics(), step) for step in range(1, 13)), every=1)
    assert [line.split()[1] for line in told] == ["1", "6", "11"]
    told = lines(*((Progress(samples_per_second=5.0), step) for step in range(1, 13)), every=1)
    assert told == ["step 5 5 samples/s", "step 10 5 samples/s"], "signs of life, where metrics are rare"
    told = lines(*((metrics(), step) for step in (1, 2, 3)), (RunSucceeded(reason="early stopping"), 3))
    assert [line.split(" loss")[0] for line in told] == ["step 1", "step 3", "succeeded at step 3: early stopping"]


def test_what_happens_is_told_at_once(lines: Lines) -> None:
    saved = CheckpointSaved(path="checkpoints/step-000300", bytes=12_345_678, final=False)
    told = lines(
        (RunResumed(path="checkpoints/step-000200"), 200),
        (Warning(code="feed.amplified", message="two\nlines"), 200),
        (BatchSplit(rows=32, micro_batch_rows=8, error="OutOfMemoryError: no", rank=1, memory="0 B are free"), 201),
        (Validation(metrics={"val/loss": 0.5, "val/mae": None}, weight=10.0), 300),
        (saved, 300),
        (attrs.evolve(saved, bytes=1000, best={"val/accuracy": 0.875}), 300),
        (SampleSaved(path="samples/step-000300/0"), 300),
        (events.Test(metrics={"test/loss": 0.25, "test/accuracy": 0.9}, weight=10.0), 300),
        (StopRequested(reason="Ctrl-C", requested_by="user"), 310),
        (RunCancelled(reason="Ctrl-C"), 310),
    )
    assert told == [
        "resumed from checkpoints/step-000200",
        "warning: two",
        "lines",
        "warning: memory ran out in step 201 on rank 1: batches of 32 rows are taken in parts of 8"
        " (OutOfMemoryError: no)",
        "validation at step 300: val/loss 0.5, val/mae nan",
        "checkpoint checkpoints/step-000300 saved (12.3 MB)",
        "checkpoint checkpoints/step-000300 saved (1 kB), best val/accuracy 0.875",
        "sample samples/step-000300/0 saved",
        "test at step 300: test/loss 0.25, test/accuracy 0.9",
        "stopping: Ctrl-C",
        "step 310 val/loss 0.5",
        "cancelled at step 310: Ctrl-C",
    ]
    failed = RunFailed(error=RunError(type="ValueError", message="no weights"))
    assert lines((failed, None)) == ["failed: ValueError: no weights"]
    assert TerminalReporter.LIVE_ONLY


def test_the_lowest_loss_of_all_validations_so_far_is_marked(lines: Lines) -> None:
    losses = [0.5, 0.4, 0.45, None, 0.39]
    assert lines(*((validation(loss), step) for step, loss in enumerate(losses, start=1))) == [
        "validation at step 1: val/loss 0.5, val/mae 0.5",
        "validation at step 2: val/loss 0.4 (best), val/mae 0.4",
        "validation at step 3: val/loss 0.45, val/mae 0.45",
        "validation at step 4: val/loss nan, val/mae nan",
        "validation at step 5: val/loss 0.39 (best), val/mae 0.39",
    ]


@pytest.mark.parametrize("last_seq", [0, 3], ids=["those of earlier attempts count", "told from its beginning"])
def test_the_best_validation_of_a_run_that_goes_on(
    lines: Lines, event: MakeEvent, tmp_path: Path, last_seq: int
) -> None:
    before = [event(validation(loss), step=1) for loss in (0.5, 0.4, 0.3)]
    (tmp_path / "logs").mkdir()
    written = [orjson.dumps(one.as_dict()) for one in before]
    (tmp_path / "logs" / "events.jsonl").write_bytes(b"\n".join(written) + b"\n" + written[0][:-20])  # a torn line
    more = before if last_seq else [validation(0.35), validation(0.2)]
    told = lines(*((one, 2) for one in more), attempt=2, last_seq=last_seq, run_dir=str(tmp_path))
    assert [line.split()[5] for line in told if "(best)" in line] == (["0.4", "0.3"] if last_seq else ["0.2"])


@pytest.mark.parametrize("terminal", [False, True], ids=["a pipe", "a terminal"])
def test_when_nobody_is_there_any_more_it_says_so_for_good(
    event: MakeEvent, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    reading, writing = os.openpty() if terminal else os.pipe()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(writing, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        reporter = TerminalReporter(clock=count(step=10).__next__)
        reporter.open(CONTEXT)
        reporter.report_event(event(RunStarted(device="cpu"), step=0))
        os.close(reading)
        with pytest.raises(FatalError, match="standard error is gone"):
            for step in range(1, 4):
                reporter.report_event(event(metrics(), step=step))
        with suppress(OSError):
            reporter.close()
        assert sys.stderr is stream, "what redirected it is gone"
        with suppress(OSError):
            stream.close()


def test_what_a_job_says_is_shown_and_not_obeyed(lines: Lines) -> None:
    told = lines(
        (RunSubmitted(trainer=HOSTILE, max_steps=10, total_steps=10), None),
        (Metrics(metrics={f"{HOSTILE}\nb": None}, nonfinite=(HOSTILE,)), 1),
        (Warning(code="trainer", message=f"{HOSTILE}\n{HOSTILE}"), 1),
        (RunFailed(error=RunError(type="ValueError", message=HOSTILE)), 2),
    )
    assert orders_in("\n".join(told)) == []
    assert "\n".join(told).count(TITLE_SHOWN) == 7


# What a process shows that reports a run. The clock stands still unless a step moves it on.
PROGRAM = """
import sys
from hostcore_builtin_plugins.terminal import TerminalReporter
from hostcore_hookspecs import Event, FatalError, Job, ReporterContext
from hostcore_hookspecs.events import *

now = 0.0
reporter = TerminalReporter(clock=lambda: now)
reporter.open(ReporterContext(run_id="flights-1", attempt=1, job=Job(), run_dir="/runs/flights-1"))
seq = 0

def report(payload, step=None):
    global seq
    seq += 1
    time_ms = round(now * 1000)
    reporter.report_event(Event(seq=seq, time_ms=time_ms, run_id="flights-1", attempt=1, step=step, payload=payload))

total = int(sys.argv[1])
report(RunSubmitted(trainer="t", max_steps=total, total_steps=total))
report(RunStarted(device="cpu"), 0)
for step in range(1, 101):
    now += 0.125
    report(Metrics(metrics={"train/loss": 1 / step}, samples_per_second=256.0), step)
    if step == 50:
        report(CheckpointSaved(path="checkpoints/[step]-000050", bytes=1000, final=False), step)
        print("somebody else", file=sys.stderr)
        if not sys.stdout.isatty():
            print("the result")
if sys.argv[2] == "succeeds":
    report(RunSucceeded(), 100)
elif sys.argv[2] == "fails":
    report(RunFailed(error=RunError(type="ValueError", message="bad loss")), 100)
reporter.close()
"""

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@cache
def on_terminal(*args: str, columns: int = 100, **environment: str) -> str:
    inherited = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    shown, status = pexpect.run(
        shlex.join([sys.executable, "-c", PROGRAM.replace("'", '"'), *args]),
        withexitstatus=True,
        env={**inherited, "TERM": "xterm-256color", **environment},
        dimensions=(24, columns),
        timeout=180,
    )
    assert status == 0, shown
    return str(shown.decode())


def drawn(shown: str) -> list[str]:
    """Every line that was drawn, without colours and movements."""
    return [line.strip() for line in re.split(r"[\r\n]+", ESCAPE.sub("", shown)) if line.strip()]


def test_on_a_terminal_the_progress_is_a_bar_with_messages_above_and_the_end_below() -> None:
    told = drawn(on_terminal("100", "succeeds"))
    bars = [line for line in told if line.startswith("flights-1  step")]
    assert re.fullmatch(r"flights-1  step 100/100  loss 0.01  256 samples/s  eta 0:00  ━+", bars[-1])
    # 100 events in 12.5 seconds: one in two is shown, and what messages and the end draw again.
    assert 50 <= len(bars) <= 60
    message = told.index("checkpoint checkpoints/[step]-000050 saved (1 kB)")
    assert "somebody else" in told
    assert told[message + 1].startswith("flights-1  step 50/100")
    assert told[-1] == "succeeded at step 100"
    assert drawn(on_terminal("100", "fails"))[-1] == "failed at step 100: ValueError: bad loss"


@pytest.mark.parametrize("end", ["succeeds", "fails", "stays open"])
def test_the_terminal_is_left_as_it_was(end: str) -> None:
    shown = on_terminal("100", f'"{end}"' if " " in end else end)
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor, hidden and shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("step 100/100")
    assert ESCAPE.sub("", shown).endswith("\n")


def test_standard_output_is_left_alone(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    shown, status = pexpect.run(
        shlex.join(["/bin/sh", "-c", '"$0" "$1" 100 succeeds > "$2"', sys.executable, str(program), f"{tmp_path}/out"]),
        withexitstatus=True,
        env={**os.environ, "TERM": "xterm"},
        timeout=180,
    )
    assert status == 0, shown
    assert (tmp_path / "out").read_text() == "the result\n"


def test_an_unknown_total_has_no_bar() -> None:
    lines = [line for line in drawn(on_terminal("0", "succeeds")) if "step 100" in line]
    assert lines[0] == "flights-1  step 100  loss 0.01  256 samples/s"


@pytest.mark.parametrize("columns", [10, 40, 70])
def test_a_narrow_terminal_gets_one_line_that_fits_and_what_does_not_fit_is_left_out_whole(columns: int) -> None:
    shown = on_terminal("100", "succeeds", columns=columns)
    bars = [line for line in drawn(shown) if line.startswith(("flights-1  step", "step"))]
    assert bars
    assert all(len(line) <= columns for line in bars)
    assert "\x1b[1A" not in shown.partition("checkpoint")[0]  # one line: nothing to move up over
    if columns == 40:
        assert next(line for line in bars if "step 100" in line) == "step 100/100  loss 0.01  eta 0:00"


def test_no_color_is_minded() -> None:
    assert "\x1b[3" in on_terminal("100", "succeeds")
    assert "\x1b[3" not in on_terminal("100", "succeeds", NO_COLOR="1")


def test_a_dumb_terminal_gets_lines() -> None:
    shown = on_terminal("100", "succeeds", TERM="dumb")
    assert "\x1b" not in shown
    assert "flights-1 step 1/100 loss 1 256 samples/s" in shown


def test_a_pipe_gets_lines_without_loading_rich(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + "\nassert 'rich' not in sys.modules\n")
    done = subprocess.run([sys.executable, str(program), "100", "succeeds"], capture_output=True, check=True, text=True)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("flights-1 step 1/100 loss 1 256 samples/s")
    assert lines[-1] == "flights-1 succeeded at step 100"
    assert "\x1b" not in done.stderr
