"""The honest end of an attempt: what the worker said, or, if it could not, what became of it."""

from pathlib import Path
from typing import Any

from hostcore.events.merger import Entry
from hostcore.supervisor.spawn import WorkerExit
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError

_OUTPUT_LINES = 40
_OUTPUT_BYTES = 64 * 1024

End = events.RunSucceeded | events.RunFailed | events.RunCancelled | events.RunPreempted

STATUS: dict[type[Any], str] = {
    events.RunSucceeded: "succeeded",
    events.RunFailed: "failed",
    events.RunCancelled: "cancelled",
    events.RunPreempted: "preempted",
}


def died(exit_: WorkerExit, *, step: int, output: Path) -> RunError:
    """The error of a worker that ended without a word.

    :param step: Finished steps that are known of.
    :param output: Its standard output and standard error, whose last lines are shown.
    """
    return RunError(
        type="WorkerDied",
        message=f"the worker {exit_} after step {step} or later, and did not say how the run ended",
        traceback=tail(output),
        rank=0,
        hint=exit_.hint or f"its output is in {output}",
    )


def tail(output: Path) -> str:
    """The last lines of a file; empty if there is none."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - _OUTPUT_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-_OUTPUT_LINES:])


def forced(status: str, reason: str) -> End:
    """The end of a worker that was asked to stop and then killed."""
    kind = events.RunCancelled if status == "cancelled" else events.RunPreempted
    return kind(reason=reason)


def is_end(entry: Entry) -> bool:
    """Whether an event ends its attempt."""
    return type(entry.payload) in STATUS
