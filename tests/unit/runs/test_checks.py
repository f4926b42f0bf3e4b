"""What is found wrong in event logs, and what is not taken for wrong."""

from collections.abc import Callable

import orjson
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


def test_an_attempt_that_has_not_told_of_its_start_yet_is_starting(run) -> None:
    tell(run.directory, 1, (None, SUBMITTED), (0, STARTED), (10, MEASURED), (20, RunSucceeded()))
    run.attempt(2)
    assert found(run.directory, running=True)["log.ends"].message == "attempt 1 succeeded, attempt 2 is starting"
    tell(run.directory, 2, (None, SUBMITTED), (20, STARTED))
    assert found(run.directory, running=True)["log.ends"].message == "attempt 1 succeeded, attempt 2 runs"


def test_an_attempt_that_ended_twice_is_found(run) -> None:
    tell(run.directory, 1, (None, SUBMITTED), (5, RunCancelled()), (5, RunSucceeded()))
    assert found(run.directory)["log.ends"].message == "attempt 1 ended 2 times (events 2, 3)"


def test_an_event_after_the_end_is_found_unless_a_reporter_failed_to_close(run) -> None:
    tell(run.directory, 1, (None, SUBMITTED), (5, RunSucceeded()), (5, ReporterFailed(reporter="x", message="y")))
    assert found(run.directory)["log.ends"].status == "ok"
    tell(run.directory, 1, (6, MEASURED))
    assert found(run.directory)["log.ends"].message == "attempt 1 has ended before its event 4 (metrics)"


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


class TestTheEventsOfARank:
    @pytest.fixture
    def written(self, run) -> list[int]:
        """Where the three events begin that the worker has written."""
        log = RankLog(run.directory.rank_events(1, 0))
        for step in (1, 2, 3):
            log.write(MEASURED, step=step)
        log.close()
        content = run.directory.rank_events(1, 0).read_bytes()
        return [0, content.index(b"\n") + 1, content.index(b"\n", content.index(b"\n") + 1) + 1]

    def merge(self, run, *offsets: int, end: bool = True) -> RunCheck:
        log = EventLog(run.directory.events, run_id="a", attempt=1)
        for step, offset in enumerate(offsets, start=1):
            log.append(Entry(payload=MEASURED, step=step, epoch=0, src=(0, 1, offset)))
        if end:
            log.append(Entry(payload=RunSucceeded(), step=3, epoch=0))
        log.close()
        return found(run.directory)["log.merged"]

    def test_are_all_in_the_log(self, run, written: list[int]) -> None:
        check = self.merge(run, *written)
        assert (check.status, check.message) == ("ok", "3 events, each once in the event log")

    def test_that_are_missing_are_found(self, run, written: list[int]) -> None:
        check = self.merge(run, written[0], written[2])
        assert (check.status, check.path) == ("failed", "logs/rank-0.attempt-1.jsonl")
        assert check.message == f"1 events are not in the event log, the first at byte {written[1]}"

    def test_that_are_there_twice_are_found(self, run, written: list[int]) -> None:
        assert self.merge(run, *written, written[2]).message == "1 events are in the event log more than once"

    def test_that_nobody_wrote_are_found(self, run, written: list[int]) -> None:
        assert self.merge(run, *written, 9999).message == "1 events of the event log are not here"

    def test_of_a_lost_attempt_wait_for_the_next(self, run, written: list[int]) -> None:
        check = self.merge(run, written[0], end=False)
        assert check.status == "warning"
        assert check.message.startswith("2 events are not merged into the event log yet")


def test_a_gap_in_the_numbers_is_named(run) -> None:
    tell(run.directory, 1, (None, SUBMITTED), (0, STARTED), (1, MEASURED))
    lines = [orjson.loads(line) for line in run.directory.events.read_bytes().splitlines()]
    lines[2]["seq"] = 7
    run.directory.events.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    assert found(run.directory)["log.sequence"].message == "after event 2 comes event 7"


def test_an_event_is_as_little_work_after_many_attempts_as_after_few() -> None:
    """Each event was compared with the ends of all attempts."""

    def work(attempts: int) -> int:
        record, common = LogRecord(), {"epoch": None, "src": None, "step": 1}
        for number in range(1, attempts + 1):
            record.add({**common, "seq": number, "attempt": number, "event": "run_failed"})
        started = {**common, "seq": attempts + 1, "attempt": attempts + 1, "event": "run_started"}
        return instructions(lambda: record.add(started))

    assert work(400) == work(4)
