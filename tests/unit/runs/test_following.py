"""When a run is over, and what a follower gets of it."""

import itertools
from collections.abc import Callable, Iterator

import attrs

from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.following import follow, is_over
from hostcore.runs.record import RunRecord


def test_what_was_written_before_the_end_is_read_after_it_was_seen() -> None:
    written, over = ["a"], iter([False, False, True])

    def is_over() -> bool:
        written.append("late")  # between the look and the reading
        return next(over)

    def read() -> Iterator[str]:
        while written:
            yield written.pop(0)

    waits = itertools.count()
    assert list(follow(read, is_over=is_over, wait=lambda: next(waits))) == ["a", "late", "late", "late"]
    assert next(waits) == 2


def test_a_failed_run_that_may_restart_is_over_only_when_its_supervisor_is_gone(run_folder: Callable, holder) -> None:
    run = run_folder()
    assert not is_over(run.directory), "it is submitted"
    record = RunRecord.read(run.directory.record)
    attrs.evolve(record, job={**record.job, "max_restarts": 3}).write(run.directory.record)
    claim_attempt(run.directory.attempts, 1, process=holder.identity, started_ms=0)
    run.result("failed", ended_ms=now_ms())
    assert not is_over(run.directory)
    holder.end()
    assert is_over(run.directory)
