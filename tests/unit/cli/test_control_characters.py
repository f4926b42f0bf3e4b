"""What a job, a plugin or a file says does not steer the terminal that a command shows it on."""

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hostile_text import HOSTILE, TITLE_SHOWN, orders_in
from terminal import on_terminal

from hostcore.runs.directory import RunDirectory
from hostcore_builtin_plugins.control_characters import visible
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import (
    CheckpointSkipped,
    Metrics,
    ReporterFailed,
    RunFailed,
    RunStarted,
    RunSubmitted,
    SampleSaved,
    StopRequested,
    UploadFailed,
    Validation,
    Warning,
)


@pytest.fixture
def hostile(run: Callable[..., RunDirectory], tell: Callable[..., None]) -> RunDirectory:
    """A run whose job, events and end are as bad as its author can make them."""
    error = RunError(type=HOSTILE, message=HOSTILE, traceback=f"Traceback\n  {HOSTILE}", plugin=HOSTILE, hint=HOSTILE)
    job = {"trainer": HOSTILE, "max_steps": 2000, "labels": {HOSTILE: HOSTILE}, "hyperparams": {HOSTILE: HOSTILE}}
    plugins = [{"kind": "trainer", "name": HOSTILE, "distribution": HOSTILE, "version": HOSTILE}]
    directory = run(
        "bad", status="failed", record={"job": job, "plugins": plugins}, error=error, reason=HOSTILE,
        metrics={HOSTILE: 0.5}, best={"metric": HOSTILE, "value": 1.0, "step": 5},
    )  # fmt: skip
    tell(
        directory,
        (None, RunSubmitted(trainer=HOSTILE, max_steps=2000, devices=(HOSTILE,))),
        (0, RunStarted(device=HOSTILE)),
        (1, Metrics(metrics={HOSTILE: 2.0}, samples_per_second=1.0)),
        (1, Validation(metrics={HOSTILE: 3.0}, weight=1)),
        (1, Warning(code="trainer", message=HOSTILE)),
        (1, CheckpointSkipped(path=HOSTILE, reason=HOSTILE)),
        (1, SampleSaved(path=HOSTILE)),
        (1, ReporterFailed(reporter=HOSTILE, message=HOSTILE)),
        (1, UploadFailed(uploader=HOSTILE, path=HOSTILE, message=HOSTILE, will_retry=False)),
        (1, StopRequested(reason=HOSTILE, requested_by=HOSTILE)),
        (1, RunFailed(error=error)),
    )
    (directory.logs / "rank-0.attempt-1.log").write_text(HOSTILE.replace("\r", "") + "\n")
    return directory


COMMANDS = [
    *(["logs", "bad"], ["logs", "bad", "--output"], ["status", "bad", "-v"], ["list"], ["compare", "bad", "plain"]),
    *(["cancel", "bad"], ["report", "bad", "-o", "r\x1b]0;own\x07.html"], ["logs", HOSTILE], ["schema", HOSTILE]),
    *(["validate", "\x1b]0;own\x07.json"], ["logs", "bad", "--\x1b]0;own\x07"], ["replay", HOSTILE, "--reporter=a"]),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(map(visible, command)))
def test_a_command_shows_what_it_was_told_and_obeys_none_of_it(
    command: list[str], hostile: RunDirectory, run: Callable[..., RunDirectory], tmp_path: Path
) -> None:
    run("plain", status="succeeded")
    shown = on_terminal(*command, cwd=tmp_path)
    assert orders_in(shown.text.replace("\x1b[8m", "") if "--output" in command else shown.text) == []
    assert TITLE_SHOWN in shown.text


@pytest.mark.parametrize("command", [["logs", "bad"], ["status", "bad"], ["list"], ["compare", "bad", "plain"]])
def test_json_has_the_same_meaning_and_only_plain_characters(
    command: list[str], hostile: RunDirectory, run: Callable[..., RunDirectory], tmp_path: Path
) -> None:
    run("plain", status="succeeded")
    text = on_terminal(*command, "--json", cwd=tmp_path).text
    assert orders_in(text) == []
    lines = text.splitlines() if command[0] == "logs" else [text]
    assert HOSTILE in _strings([orjson.loads(line) for line in lines])


def test_what_the_host_prints_of_an_unreadable_run_begins_no_line_of_its_own(
    hostcore: Callable, run: Callable[..., RunDirectory]
) -> None:
    directory = run("a", status="succeeded")
    directory.path.rename(directory.path.with_name("x\nerror: \x1b[2Jy"))
    (directory.path.with_name("x\nerror: \x1b[2Jy") / "config" / "run.json").write_text("{")
    said = hostcore("list")
    assert r"x\nerror: \x1b[2Jy" in said.err
    assert "\x1b" not in said.out + said.err


def _strings(value: object) -> set[str]:
    if isinstance(value, dict):
        return {text for pair in value.items() for one in pair for text in _strings(one)}
    if isinstance(value, list):
        return {text for one in value for text in _strings(one)}
    return {value} if isinstance(value, str) else set()
