"""Following a run: what it writes, until it is over."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from hostcore.runs.attempts import read_claim
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.runs.statuses import ALIVE
from hostcore.runs.summary import RunSummary, summarize

T = TypeVar("T")

#: Between two polls of a run. Short enough to seem immediate, long enough to cost nothing.
_LOOK_SECONDS: Final = 0.2
#: A supervisor begins its next attempt so long after a failed one at the latest.
_RESTART_MS: Final = 75_000


def is_over(directory: RunDirectory) -> bool:
    """Return whether a run has ended or is lost, so that nothing happens to it unless it is started again."""
    summary = summarize(directory)
    return summary.status not in ALIVE and not _may_restart(directory, summary)


def _may_restart(directory: RunDirectory, summary: RunSummary) -> bool:
    """Return whether the supervisor of a failed attempt still lives, and may begin another (``max_restarts``)."""
    if summary.status != "failed" or summary.ended_ms is None or time.time() * 1000 - summary.ended_ms > _RESTART_MS:
        return False
    claim = read_claim(directory.attempts, summary.attempt)
    restarts = RunRecord.read(directory.record).job.get("max_restarts", 0)
    return bool(restarts and claim and claim.process.is_here and claim.process.runs)


def follow(read: Callable[[], Iterable[T]], *, is_over: Callable[[], bool], wait: Callable[[], None]) -> Iterator[T]:
    """Yield the output of a run, until it is over and everything was read.

    :param read: Returns the new output.
    :param is_over: Called before each reading: output from before the end is read after the end was seen.
    :param wait: Called between two readings.
    """
    while True:
        last = is_over()
        yield from read()
        if last:
            return
        wait()


def wait() -> None:
    """Wait until the next poll."""
    time.sleep(_LOOK_SECONDS)
