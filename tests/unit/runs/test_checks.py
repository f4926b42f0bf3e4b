"""What is found wrong in event logs, and what is not taken for wrong."""

from collections.abc import Callable
from typing import Any

import pytest
from instruction_count import instructions

from hostcore.events.merger import Entry, EventLog
from hostcore.events.writer import RankLog
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.result import RunResult
from hostcore.verification.checks import RunCheck
from hostcore.verification.log_checks import check_log
from hostcore.verification.log_record import LogRecord
from hostcore_hookspecs.events import (
    Metrics,
    Payload,
    ReporterFailed,
    RunCancelled,
    RunStarted,
    RunSubmitted,
    RunSucceeded,
)

SUBMITTED = RunSubmitted(trainer="mine", max_steps=20)
STARTED = RunStarted(device="cpu")
MEASURED = Metrics(metrics={})


def tell(directory: RunDirectory, attempt: int, *events: tuple[int | None, Payload]) -> None:
    log = EventLog(directory.events, run_id=directory.run_id, attempt=attempt)
    for step, payload in events:
        log.append(Entry(payload=payload, step=step, epoch=0))
    log.close()


def found(directory: RunDirectory, *, running: bool = False) -> dict[str, RunCheck]:
    result, log = RunResult.read(directory.result), LogRecord.read(directory.events)
    newest = newest_attempt(directory.attempts)
    return {check.id: check for check in check_log(directory, log, result, newest_attempt=newest, running=running)}


@pytest.fixture
def run(run_folder: Callable):
    """A run with one attempt."""
    made = run_folder()
    made.attempt(1)
    return made


def test_a_lost_attempt_needs_no_end(run) -> None:
    run.attempt(2)
    tell(run.directory, 1, (None, SUBMITTED), (0, STARTED), (10, MEASURED))
    tell(run.directory, 2, (None, SUBMITTED), (0, STARTED), (10, MEASURED), (20, RunSucceeded()))
    run.result("succeeded", attempt=2, step=20)
    checks = found(run.directory)
    assert {check.status for check in checks.values()} == {"ok"}
    assert checks["log.ends"].message == "attempt 1 was lost with its supervisor, attempt 2 succeeded"


ENDED = [(None, SUBMITTED), (5, RunSucceeded())]


@pytest.mark.parametrize(
    ("told", "status", "message"),
    [
        ([(None, SUBMITTED), (5, RunCancelled()), ENDED[1]], "failed", "attempt 1 ended 2 times (events 2, 3)"),
        ([*ENDED, (5, ReporterFailed(reporter="x", message="y"))], "ok", "attempt 1 succeeded"),
        ([*ENDED, (6, MEASURED)], "failed", "attempt 1 has ended before its event 3 (metrics)"),
    ],
)
def test_an_attempt_ends_once_and_nothing_but_a_failed_close_comes_behind_it(
    run, told: list[Any], status: str, message: str
) -> None:
    tell(run.directory, 1, *told)
    check = found(run.directory)["log.ends"]
    assert (check.status, check.message) == (status, message)


@pytest.mark.parametrize("steps", [(10, 10), (10, 9), (0,)])
def test_a_step_that_was_recorded_twice_or_out_of_order_is_found(run, steps: tuple[int, ...]) -> None:
    tell(run.directory, 1, (None, SUBMITTED), (0, STARTED), *((step, MEASURED) for step in steps))
    assert found(run.directory)["log.steps"].status == "failed"


def test_an_end_without_a_result_is_found(run) -> None:
    tell(run.directory, 1, (None, SUBMITTED), (20, RunSucceeded()))
    assert found(run.directory)["log.result"].message == (
        "the log says how attempt 1 ended, and there is no result.json"
    )


def test_half_a_line_at_the_end_is_named_and_hurts_nobody(run) -> None:
    tell(run.directory, 1, (None, SUBMITTED))
    with run.directory.events.open("ab") as log:
        log.write(b'{"schema"')
    assert found(run.directory)["log.torn"].status == "warning"
    assert "log.torn" not in found(run.directory, running=True)


#: Which of the three events of a rank are in the log of the run, and what is found.
MERGED = [
    ([0, 1, 2], "ok", "3 events, each once in the event log"),
    ([0, 2], "failed", "1 events are not in the event log, the first at byte "),
    ([0, 1, 2, 2], "failed", "1 events are in the event log more than once"),
    ([0, 1, 2, 9999], "failed", "1 events of the event log are not here"),
    ([0], "warning", "2 events are not merged into the event log yet"),  # of an attempt without an end
]


@pytest.mark.parametrize(("merged", "status", "message"), MERGED)
def test_each_event_of_a_rank_is_in_the_log_once(run, merged: list[int], status: str, message: str) -> None:
    log = RankLog(run.directory.rank_events(1, 0))
    for step in (1, 2, 3):
        log.write(MEASURED, step=step)
    log.close()
    content = run.directory.rank_events(1, 0).read_bytes()
    offsets = [0, *(place + 1 for place, byte in enumerate(content) if byte == ord("\n"))]
    log = EventLog(run.directory.events, run_id="a", attempt=1)
    for step, number in enumerate(merged, start=1):
        offset = offsets[number] if number < 3 else number
        log.append(Entry(payload=MEASURED, step=step, epoch=0, src=(0, 1, offset)))
    if status != "warning":
        log.append(Entry(payload=RunSucceeded(), step=3, epoch=0))
    log.close()
    check = found(run.directory)["log.merged"]
    assert (check.status, check.path) == (status, "logs/rank-0.attempt-1.jsonl")
    assert check.message.startswith(message)


def test_an_event_is_as_little_work_after_many_attempts_as_after_few() -> None:
    """Each event was compared with the ends of all attempts."""

    def work(attempts: int) -> int:
        record, common = LogRecord(), {"epoch": None, "src": None, "step": 1}
        for number in range(1, attempts + 1):
            record.add({**common, "seq": number, "attempt": number, "event": "run_failed"})
        started = {**common, "seq": attempts + 1, "attempt": attempts + 1, "event": "run_started"}
        return instructions(lambda: record.add(started))

    assert work(400) == work(4)
