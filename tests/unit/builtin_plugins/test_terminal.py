import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

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
CONTEXT = ReporterContext(run_id="flights-1", attempt=1, job=Job(run_id="flights-1"), run_dir="/runs/flights-1")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


@pytest.fixture
def reporter(clock: Clock, stderr: io.StringIO) -> TerminalReporter:
    """One that writes lines."""
    reporter = TerminalReporter(settings=TerminalReporter.Settings(every_seconds=5), clock=clock)
    reporter.open(CONTEXT)
    return reporter


def metrics(loss: float | None = 0.43211, rate: float = 12345.4) -> Metrics:
    nonfinite = ("train/loss",) if loss is None else ()
    return Metrics(metrics={"train/loss": loss}, nonfinite=nonfinite, samples_per_second=rate)


def test_a_line_has_run_step_loss_rate_and_remaining_time(
    reporter: TerminalReporter, event: MakeEvent, stderr: io.StringIO
) -> None:
    reporter.report_event(event(RunSubmitted(trainer="t", max_steps=1000, total_steps=1000)))
    reporter.report_event(event(RunStarted(device="cpu"), step=0, seconds=0))
    reporter.report_event(event(metrics(), step=340, seconds=21.636))
    assert stderr.getvalue() == "flights-1 step 340/1000 loss 0.4321 12,345 samples/s eta 0:42\n"


def test_lines_come_every_few_seconds_and_for_the_first_metrics(
    reporter: TerminalReporter, event: MakeEvent, stderr: io.StringIO, clock: Clock
) -> None:
    for step in range(1, 13):
        clock.now += 1
        reporter.report_event(event(metrics(), step=step))
    assert re.findall(r"step (\d+)", stderr.getvalue()) == ["1", "6", "11"]


def test_signs_of_life_are_shown_where_metrics_are_rare(
    reporter: TerminalReporter, event: MakeEvent, stderr: io.StringIO, clock: Clock
) -> None:
    for step in range(1, 13):
        clock.now += 1
        reporter.report_event(event(Progress(samples_per_second=5.0), step=step))
    assert stderr.getvalue() == "flights-1 step 5 5 samples/s\nflights-1 step 10 5 samples/s\n"


def test_the_last_step_and_the_end_are_always_shown(
    reporter: TerminalReporter, event: MakeEvent, stderr: io.StringIO
) -> None:
    for step in (1, 2, 3):
        reporter.report_event(event(metrics(), step=step))
    reporter.report_event(event(RunSucceeded(reason="early stopping"), step=3))
    assert [line.split(" loss")[0] for line in stderr.getvalue().splitlines()] == [
        "flights-1 step 1",
        "flights-1 step 3",
        "flights-1 succeeded at step 3: early stopping",
    ]


def test_what_happens_is_told_at_once(reporter: TerminalReporter, event: MakeEvent, stderr: io.StringIO) -> None:
    reporter.report_event(event(RunResumed(path="checkpoints/step-000200"), step=200))
    reporter.report_event(event(Warning(code="feed.amplified", message="two\nlines"), step=200))
    split = BatchSplit(rows=32, micro_batch_rows=8, error="OutOfMemoryError: no", rank=1, memory="0 B are free")
    reporter.report_event(event(split, step=201))
    reporter.report_event(event(Validation(metrics={"val/loss": 0.5, "val/mae": None}, weight=10.0), step=300))
    reporter.report_event(
        event(CheckpointSaved(path="checkpoints/step-000300", bytes=12_345_678, final=False), step=300)
    )
    reporter.report_event(event(StopRequested(reason="Ctrl-C", requested_by="user"), step=310))
    reporter.report_event(event(RunCancelled(reason="Ctrl-C"), step=310))
    assert stderr.getvalue().splitlines() == [
        "flights-1 resumed from checkpoints/step-000200",
        "flights-1 warning: two",
        "flights-1 lines",
        "flights-1 warning: memory ran out in step 201 on rank 1: batches of 32 rows are taken in parts of 8"
        " (OutOfMemoryError: no)",
        "flights-1 validation at step 300: val/loss 0.5, val/mae nan",
        "flights-1 checkpoint checkpoints/step-000300 saved (12.3 MB)",
        "flights-1 stopping: Ctrl-C",
        "flights-1 step 310 val/loss 0.5",
        "flights-1 cancelled at step 310: Ctrl-C",
    ]


def test_the_lowest_loss_of_all_validations_so_far_is_marked(
    reporter: TerminalReporter, event: MakeEvent, stderr: io.StringIO
) -> None:
    for step, loss in [(1, 0.5), (2, 0.4), (3, 0.45), (4, None), (5, 0.39)]:
        reporter.report_event(event(Validation(metrics={"val/loss": loss, "val/mae": loss}, weight=10.0), step=step))
    assert stderr.getvalue().splitlines() == [
        "flights-1 validation at step 1: val/loss 0.5, val/mae 0.5",
        "flights-1 validation at step 2: val/loss 0.4 (best), val/mae 0.4",
        "flights-1 validation at step 3: val/loss 0.45, val/mae 0.45",
        "flights-1 validation at step 4: val/loss nan, val/mae nan",
        "flights-1 validation at step 5: val/loss 0.39 (best), val/mae 0.39",
    ]


def test_validations_of_earlier_attempts_count_for_the_lowest_loss(
    clock: Clock, event: MakeEvent, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = event(Validation(metrics={"val/loss": 0.4}, weight=10.0), step=1)
    (tmp_path / "logs").mkdir()
    written = orjson.dumps(before.as_dict())
    (tmp_path / "logs" / "events.jsonl").write_bytes(written + b"\n" + written[:-20])  # a torn line behind it
    reporter = TerminalReporter(clock=clock)
    reporter.open(attrs.evolve(CONTEXT, attempt=2, run_dir=str(tmp_path)))
    for step, loss in [(2, 0.45), (3, 0.35)]:
        reporter.report_event(event(Validation(metrics={"val/loss": loss}, weight=10.0), step=step))
    assert capsys.readouterr().err.splitlines() == [
        "flights-1 validation at step 2: val/loss 0.45",
        "flights-1 validation at step 3: val/loss 0.35 (best)",
    ]


def test_a_run_told_from_its_beginning_has_its_own_best_validations(
    clock: Clock, event: MakeEvent, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = [event(Validation(metrics={"val/loss": loss}, weight=10.0), step=1) for loss in (0.5, 0.4, 0.3)]
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "events.jsonl").write_bytes(b"".join(orjson.dumps(one.as_dict()) + b"\n" for one in told))
    reporter = TerminalReporter(clock=clock)
    reporter.open(attrs.evolve(CONTEXT, attempt=2, last_seq=3, run_dir=str(tmp_path)))
    for one in told:
        reporter.report_event(one)
    assert capsys.readouterr().err.count("(best)") == 2


@pytest.mark.parametrize("terminal", [False, True], ids=["a pipe", "a terminal"])
def test_when_nobody_is_there_any_more_it_says_so_for_good(
    clock: Clock, event: MakeEvent, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    reading, writing = os.openpty() if terminal else os.pipe()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(writing, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        reporter = TerminalReporter(clock=clock)
        reporter.open(CONTEXT)
        reporter.report_event(event(RunStarted(device="cpu"), step=0))
        os.close(reading)
        with pytest.raises(FatalError, match="standard error is gone"):
            for step in range(1, 4):
                clock.now += 10
                reporter.report_event(event(metrics(), step=step))
        with suppress(OSError):
            reporter.close()
        assert sys.stderr is stream, "what redirected it is gone"
        with suppress(OSError):
            stream.close()


def test_it_shows_what_happens_now() -> None:
    assert TerminalReporter.LIVE_ONLY


def test_a_checkpoint_says_what_it_is_the_best_of_and_samples_and_the_test_are_told(
    reporter: TerminalReporter, event: MakeEvent, stderr: io.StringIO
) -> None:
    saved = CheckpointSaved(path="checkpoints/step-000300", bytes=1000, final=False, best={"val/accuracy": 0.875})
    reporter.report_event(event(saved, step=300))
    reporter.report_event(event(SampleSaved(path="samples/step-000300/0"), step=300))
    reporter.report_event(event(events.Test(metrics={"test/loss": 0.25, "test/accuracy": 0.9}, weight=10.0), step=300))
    assert stderr.getvalue().splitlines() == [
        "flights-1 checkpoint checkpoints/step-000300 saved (1 kB), best val/accuracy 0.875",
        "flights-1 sample samples/step-000300/0 saved",
        "flights-1 test at step 300: test/loss 0.25, test/accuracy 0.9",
    ]


def test_a_loss_that_is_not_finite_is_shown_as_such(
    reporter: TerminalReporter, event: MakeEvent, stderr: io.StringIO
) -> None:
    reporter.report_event(event(metrics(loss=None), step=1))
    assert "loss nan" in stderr.getvalue()
    assert "not finite: train/loss" in stderr.getvalue()


def test_a_failure_before_the_first_step_is_one_line(
    reporter: TerminalReporter, event: MakeEvent, stderr: io.StringIO
) -> None:
    reporter.report_event(event(RunFailed(error=RunError(type="ValueError", message="no weights"))))
    reporter.close()
    assert stderr.getvalue() == "flights-1 failed: ValueError: no weights\n"


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


def test_on_a_terminal_the_progress_is_a_bar() -> None:
    bars = [line for line in drawn(on_terminal("100", "succeeds")) if "step 100/100" in line]
    assert re.fullmatch(r"flights-1  step 100/100  loss 0.01  256 samples/s  eta 0:00  ━+", bars[-1])


def test_the_bar_is_redrawn_a_few_times_a_second_at_most() -> None:
    bars = [line for line in drawn(on_terminal("100", "succeeds")) if line.startswith("flights-1  step")]
    # 100 events in 12.5 seconds: one in two is shown, and what messages and the end draw again.
    assert 50 <= len(bars) <= 60


@pytest.mark.parametrize("end", ["succeeds", "fails", "stays open"])
def test_the_terminal_is_left_as_it_was(end: str) -> None:
    shown = on_terminal("100", f'"{end}"')
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor, hidden and shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("step 100/100")
    assert ESCAPE.sub("", shown).endswith("\n")


def test_the_end_is_told_below_the_bar() -> None:
    assert drawn(on_terminal("100", "succeeds"))[-1] == "succeeded at step 100"
    assert drawn(on_terminal("100", "fails"))[-1] == "failed at step 100: ValueError: bad loss"


def test_messages_and_other_output_are_told_above_the_bar() -> None:
    lines = drawn(on_terminal("100", "succeeds"))
    message = lines.index("checkpoint checkpoints/[step]-000050 saved (1 kB)")
    assert "somebody else" in lines
    assert lines[message + 1].startswith("flights-1  step 50/100")


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


@pytest.mark.parametrize("columns", [10, 30, 50, 70])
def test_a_narrow_terminal_gets_one_line_that_fits(columns: int) -> None:
    shown = on_terminal("100", "succeeds", columns=columns)
    bars = [line for line in drawn(shown) if line.startswith(("flights-1  step", "step"))]
    assert bars
    assert all(len(line) <= columns for line in bars)
    assert "\x1b[1A" not in shown.partition("checkpoint")[0]  # one line: nothing to move up over


def test_what_does_not_fit_is_left_out_whole() -> None:
    lines = [line for line in drawn(on_terminal("100", "succeeds", columns=40)) if "step 100" in line]
    assert lines[0] == "step 100/100  loss 0.01  eta 0:00"


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


def test_what_a_job_says_is_shown_and_not_obeyed(
    reporter: TerminalReporter, event: MakeEvent, stderr: io.StringIO
) -> None:
    reporter.report_event(event(RunSubmitted(trainer=HOSTILE, max_steps=10, total_steps=10)))
    reporter.report_event(event(Metrics(metrics={f"{HOSTILE}\nb": None}, nonfinite=(HOSTILE,)), step=1))
    reporter.report_event(event(Warning(code="trainer", message=f"{HOSTILE}\n{HOSTILE}"), step=1))
    error = RunError(type="ValueError", message=HOSTILE)
    reporter.report_event(event(RunFailed(error=error), step=2))
    assert orders_in(stderr.getvalue()) == []
    assert stderr.getvalue().count(TITLE_SHOWN) == 7
    assert all(line.startswith("flights-1 ") for line in stderr.getvalue().splitlines())
