"""That a launch can be stopped: politely first, and in any case."""

from typing import Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.launcher.stage import NOT_OVER, Instructions, Launched, launched
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject

_NEEDED: Final = ("launcher.launches",)
_LONG_GRACE_SECONDS: Final = 60.0
_SHORT_GRACE_SECONDS: Final = 0.3


def _cancelled(subject: Subject) -> Launched:
    """A program that was cancelled with a long time of grace, and needed some of it."""
    one = launched(subject, Instructions(prints=[(1, b"", "go")], stopping_seconds=0.3))
    one.started()
    one.launcher.cancel(one.handle, _LONG_GRACE_SECONDS)
    return one


@check("launcher.cancel", requires=_NEEDED)
def cancel(subject: Subject) -> None:
    """Cancelling asks the command to stop, and gives it the time to write a checkpoint.

    The program takes 0.3 s to stop when it gets SIGINT or SIGTERM, and then writes a result that says cancelled. It is
    cancelled with 60 seconds of grace: it must come to its own end, and poll must say cancelled. cancel() may return
    before that, or wait for it.

    SIGKILL at once, or a grace that is not handed on, loses the steps since the last checkpoint.
    """
    one = subject.shared("cancelled launch", lambda: _cancelled(subject))
    status = one.over()
    if not (one.folder / "signal.json").exists():
        raise ConformanceError(
            expected="the program to be asked with SIGINT or SIGTERM",
            got=f"it was gone without a signal that it could handle; poll says {status!r}",
            fix="Send SIGINT to the command itself, and force only after grace_seconds.",
        )
    if not (one.folder / "stopped.json").exists():
        raise ConformanceError(
            expected=f"{_LONG_GRACE_SECONDS:g} s of grace",
            got="it was killed before the 0.3 s were over that it needed to stop",
            fix="Wait up to grace_seconds for its end before it is killed.",
        )
    if status.status != "cancelled":
        raise ConformanceError(
            expected="cancelled, as result.json says",
            got=repr(status),
            fix="Read result.json in the run directory.",
        )


@check("launcher.cancel_by_force", requires=_NEEDED)
def cancel_by_force(subject: Subject) -> None:
    """A command that does not stop is ended by force when its grace is over.

    The program notes SIGINT and SIGTERM and stays. It is cancelled with 0.3 s of grace and must be gone soon after, and
    poll must not say that it runs, nor that it succeeded.
    """
    one = launched(subject, Instructions(prints=[(1, b"", "go")], stubborn=True))
    one.started()
    one.launcher.cancel(one.handle, _SHORT_GRACE_SECONDS)
    if not one.gone():
        one.open_gate("go")
        raise ConformanceError(
            expected=f"a program that ignores signals to be gone within {one.patience_seconds:g} s of cancel(…,"
            f" grace_seconds={_SHORT_GRACE_SECONDS})",
            got="it still runs",
            fix="After grace_seconds, kill it: SIGKILL to its process group, or the engine's forced deletion.",
        )
    status = one.over()
    if status.status == "succeeded":
        raise ConformanceError(
            expected="cancelled, failed or lost", got=repr(status), fix="Without a result.json, nothing has succeeded."
        )


@check("launcher.cancel_again", requires=("launcher.cancel",))
def cancel_again(subject: Subject) -> None:
    """Cancelling what has ended, or was cancelled before, does nothing.

    A program that was cancelled and has ended is cancelled twice more, and so is one that has succeeded. Nothing may be
    raised, and poll must say the same as before. People press the button again, and runs end in between.
    """
    finished = launched(subject)
    finished.over()
    for one in (subject.shared("cancelled launch", lambda: _cancelled(subject)), finished):
        before = one.over()
        for _ in range(2):
            one.launcher.cancel(one.handle, _SHORT_GRACE_SECONDS)
        after = one.launcher.poll(one.handle)
        if after.status != before.status or after.status in NOT_OVER:
            raise ConformanceError(
                expected=f"poll to say {before.status} still",
                got=repr(after),
                fix="Look whether it runs, before stopping it; what has ended keeps its status.",
            )
