"""The end of an attempt: the worker's terminal event, or, without one, what its exit status and output tell."""

import signal
from collections.abc import Sequence
from typing import Any

from hostcore.events.merger import Entry
from hostcore.supervisor.workers.control_group import children_peak, memory_limit
from hostcore.supervisor.workers.session import Member
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError

End = events.RunSucceeded | events.RunFailed | events.RunCancelled | events.RunPreempted

STATUS: dict[type[Any], str] = {
    events.RunSucceeded: "succeeded",
    events.RunFailed: "failed",
    events.RunCancelled: "cancelled",
    events.RunPreempted: "preempted",
}


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
    return RunError(
        type="Stalled",
        message=f"{who} did not get beyond step {step} for {seconds:.0f} s and {was} aborted",
        traceback="\n\n".join(told),
        rank=0 if alone else None,
        hint=f"the tracebacks above show where {stood}; a step that may take longer needs a larger stall_seconds",
    )


def _in_words(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def forced(status: str, reason: str) -> End:
    """The end of a worker that was asked to stop and then killed."""
    kind = events.RunCancelled if status == "cancelled" else events.RunPreempted
    return kind(reason=reason)


def is_end(entry: Entry) -> bool:
    """Whether an event ends its attempt."""
    return type(entry.payload) in STATUS
