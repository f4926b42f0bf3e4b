"""The outcome of an attempt: gathers what its ranks report and how their processes ended, and decides how it ended."""

import signal
from collections.abc import Sequence

from hostcore.events.writer import now_ms
from hostcore.supervisor.attempt.ending import End
from hostcore.supervisor.attempt.journal import Journal
from hostcore.supervisor.attempt.root_cause import Failure, deciding_rank, first_failure, has_failed, is_consequence
from hostcore.supervisor.attempt.stopping import Stopping
from hostcore.supervisor.workers.control_group import children_peak, memory_limit
from hostcore.supervisor.workers.session import Member, WorkerSession
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError


class Outcome:
    """How the ranks of an attempt have ended, and what the attempt's end is."""

    def __init__(self, workers: WorkerSession, journal: Journal, stopping: Stopping) -> None:
        self._workers = workers
        self._journal = journal
        self._stopping = stopping
        #: What ranks say of their failures over the line, because their logs could not take it.
        self._told: dict[int, Failure] = {}

    def tell(self, rank: int, error: RunError) -> None:
        """A rank says over the line how it has failed."""
        failure = Failure(rank=rank, time_ms=now_ms(), error=error, is_consequence=is_consequence(error))
        self._told.setdefault(rank, failure)

    @property
    def is_complete(self) -> bool:
        """Whether every rank has said how it has ended."""
        said = self._journal.said
        return bool(self._workers.members) and all(member.rank in said for member in self._workers.members)

    @property
    def has_failed(self) -> bool:
        """Whether any rank has failed, so that the others cannot go on."""
        return has_failed(self._workers.members, self._journal.said, self._told)

    @property
    def failure(self) -> RunError | None:
        """Why it has failed, as the ranks say themselves."""
        found = first_failure([], self._journal.said, self._told, of_death=self._died)
        return found.error if found else None

    def end(self, *, released: bool) -> tuple[End, int | None]:
        """How it has ended: what the ranks said; what was done to them; or that one died.

        :param released: True if the workers have been released to train.
        :return: The end, and the rank in whose log it stands; None if it stands in none.
        """
        members, said, stopping = self._workers.members, self._journal.said, self._stopping
        failure = first_failure(members, said, self._told, of_death=self._died)
        if stopping.stalled is not None and not (self.is_complete and failure is None):
            error = stalled(stopping.stalled, step=self._journal.step, members=members)
            return events.RunFailed(error=error), None
        if stopping.asked is not None:
            status, reason = stopping.asked.status, stopping.killed
            if not released:  # in this process, a Ctrl-C ends the worker by itself
                return forced(status, reason or f"{stopping.asked.reason} before the run had started"), None
            failed_by_itself = failure is not None and not failure.is_consequence
            if reason is not None and not self.is_complete and not failed_by_itself:
                return forced(status, reason), None
        rank = deciding_rank(said, failure)
        if rank is not None:
            return said[rank].payload, rank  # type: ignore[return-value]
        assert failure is not None
        return events.RunFailed(error=failure.error), None

    def _died(self, member: Member) -> RunError:
        return died(member, step=self._journal.step)


def died(member: Member, *, step: int) -> RunError:
    """The error of a worker that ended without a terminal event.

    :param step: Finished steps that are known of.
    """
    kind, what, hint = _cause(member)
    return RunError(
        type=kind,
        message=f"{what} after step {step} or later, and did not say how the run ended",
        traceback=member.tail(),
        rank=member.rank,
        hint=hint or f"its output is in {member.output}",
    )


def _cause(member: Member) -> tuple[str, str, str | None]:
    """Type, message and hint for a death."""
    exit_, name = member.exit, member.name
    assert exit_ is not None
    if exit_.out_of_memory:
        limit = memory_limit()
        held = _in_words(children_peak()) + (f" of the {_in_words(limit)} that it may take" if limit else "")
        return (
            "OutOfMemory",
            f"the kernel killed {name} for lack of memory, of which it had held up to {held},",
            "give it more memory, or need less: a smaller batch, fewer dataset.workers, a smaller dataset.window_bytes",
        )
    what = f"{name} {exit_}"
    match exit_.signal:
        case signal.SIGSEGV:
            hint = "a segmentation fault in native code; the Python traceback above ends where it was called"
            return "SegmentationFault", what, hint
        case signal.SIGBUS:
            return "BusError", what, "a memory-mapped file was cut short, or the shared memory is full"
        case signal.SIGABRT:
            return "Aborted", what, "native code aborted; the end of its output is above"
        case signal.SIGKILL:
            hint = "another process killed it: the kernel counts no process that it has killed for lack of memory"
            return "WorkerDied", what, hint
    return "WorkerDied", what, None


def stalled(seconds: float, *, step: int, members: Sequence[Member]) -> RunError:
    """The error of workers that made no progress and were aborted.

    :param members: All. Which rank kept the others waiting, only the tracebacks in their outputs can tell.
    """
    alone = len(members) == 1
    who, was = ("the worker", "was") if alone else (f"the {len(members)} ranks", "were")
    told = [member.tail() if alone else f"rank {member.rank}:\n{member.tail()}" for member in members]
    stood = "it stood" if alone else "each of them stood; one that is in no collective keeps the others waiting"
    apart = "" if alone else ", as does one that alone has called ctx.request_best or ctx.request_restore"
    return RunError(
        type="Stalled",
        message=f"{who} did not get beyond step {step} for {seconds:.0f} s and {was} aborted",
        traceback="\n\n".join(told),
        rank=0 if alone else None,
        hint=f"the tracebacks above show where {stood}{apart}; "
        "a step that may take longer needs a larger stall_seconds",
    )


def _in_words(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def forced(status: str, reason: str) -> End:
    """The end of a worker that was asked to stop and then killed."""
    kind = events.RunCancelled if status == "cancelled" else events.RunPreempted
    return kind(reason=reason)
