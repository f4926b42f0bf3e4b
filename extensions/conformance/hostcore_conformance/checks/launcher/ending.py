"""Checks of ends: a launch can be stopped, politely first, and its launcher reports the end."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from hostcore_conformance.check import check
from hostcore_conformance.checks.launcher.stage import NOT_OVER, Instructions, Launched, launched
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject

_T = TypeVar("_T")

_NEEDED: Final = ("launcher.launches",)

_LONG_GRACE_SECONDS: Final = 60.0
_SHORT_GRACE_SECONDS: Final = 0.3
#: By variant: the program's end, and the allowed reports of it.
_ENDS: Final = {
    "succeeded": (Instructions(), ("succeeded",), (0, None)),
    "failed": (
        Instructions(result={"status": "failed", "exit_code": 1, "error": {"message": "no data"}}, exit_code=1),
        ("failed",),
        (1, None),
    ),
    "preempted": (
        Instructions(result={"status": "preempted", "exit_code": 75, "reason": "SIGTERM"}, exit_code=75),
        ("preempted",),
        (75, None),
    ),
    "no_result": (Instructions(result=None, exit_code=3), ("failed", "lost"), (3, None)),
    "killed": (
        Instructions(result=None, exit_code=-signal.SIGKILL),
        ("failed", "lost"),
        (-signal.SIGKILL, 128 + signal.SIGKILL, None),
    ),
}


def _cancelled(subject: Subject) -> Launched:
    """A program that was cancelled with a long time of grace, and needed some of it."""
    one = launched(subject, Instructions(prints=[(1, b"", "go")], stopping_seconds=0.3))
    one.started()
    one.launcher.cancel(one.handle, _LONG_GRACE_SECONDS)
    return one


@check("launcher.cancel", requires=_NEEDED)
def cancel(subject: Subject) -> None:
    """Cancelling asks the command to stop, and gives it the time to write a checkpoint.

    The program takes 0.3 s to stop when it gets SIGINT or SIGTERM, and then writes a result with status cancelled. It
    is cancelled with 60 seconds of grace: it must come to its own end, and poll must report cancelled. cancel() may
    return before that, or wait for it.

    SIGKILL at once, or a grace that is not handed on, loses the steps since the last checkpoint.
    """
    one = subject.shared("cancelled launch", lambda: _cancelled(subject))
    status = one.over()
    if not (one.folder / "signal.json").exists():
        raise ConformanceError(
            expected="the program to be asked with SIGINT or SIGTERM",
            got=f"it was gone without a signal that it could handle; poll returns {status!r}",
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
            expected="cancelled, as in result.json",
            got=repr(status),
            fix="Read result.json in the run directory.",
        )


@check("launcher.cancel_by_force", requires=_NEEDED)
def cancel_by_force(subject: Subject) -> None:
    """A command that does not stop is ended by force when its grace is over.

    The program notes SIGINT and SIGTERM and stays. It is cancelled with 0.3 s of grace and must be gone soon after, and
    poll must report neither that it runs, nor that it succeeded.
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
    raised, and poll must report the same as before. People press the button again, and runs end in between.
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
                expected=f"poll to return {before.status} still",
                got=repr(after),
                fix="Look whether it runs, before stopping it; what has ended keeps its status.",
            )


@check("launcher.ends", requires=_NEEDED, variants=tuple(_ENDS))
def ends(subject: Subject, variant: str) -> None:
    """Polling reports the end of a launch: its status, and its exit code where it can be known.

    The program ends in five ways: with a result of status succeeded, failed (exit code 1) or preempted (75); with exit
    code 3 and no result.json; killed by SIGKILL. The first three are those of result.json in the run directory. The
    other two are failed, or lost if the engine has no more information; never succeeded. The exit code may be None;
    if it is given, it must be the right one.

    A supervisor that was killed, or ran out of memory, leaves no result. A launcher that takes "not running any more"
    for success reports a night's run as done.
    """
    told, statuses, codes = _ENDS[variant]
    one = launched(subject, told)
    for _ in range(2):  # asking again changes nothing
        status = one.over()
        if status.status not in statuses:
            raise ConformanceError(
                expected=f"{' or '.join(statuses)} for a program that {_deed(told)}",
                got=repr(status),
                fix="Read result.json in the run directory; without one, the exit code decides, and 0 is lost, too.",
            )
        if status.exit_code not in codes:
            raise ConformanceError(
                expected=f"exit_code {codes[0]}, or None if it cannot be known",
                got=repr(status),
                fix="Hand on the engine's exit code, or the one in result.json; None is better than a guess.",
            )


def _deed(told: Instructions) -> str:
    end = f"died of {signal.Signals(-told.exit_code).name}" if told.exit_code < 0 else f"ended with {told.exit_code}"
    return f"{end} and left " + (f"a result.json: {dict(told.result)}" if told.result else "no result.json")


@check("launcher.lost", requires=_NEEDED)
def lost(subject: Subject) -> None:
    """A launch of which nothing is left is lost: poll, read_logs and cancel do not raise.

    The program ends, and its run directory is removed, log and result included. poll must then report lost or failed,
    the log may be empty, and cancel has nothing to do.

    Engines forget finished jobs after a while, and users tidy up. `hostcore list` asks for every run, so one exception
    here hides all others.
    """
    one = launched(subject, Instructions(result=None, exit_code=1))
    one.over()
    shutil.rmtree(Path(one.context.run_dir))
    status = _asked("poll", lambda: one.launcher.poll(one.handle))
    if status.status not in ("lost", "failed"):
        raise ConformanceError(
            expected="lost (or failed)", got=repr(status), fix="What cannot be found any more is lost."
        )
    _asked("read_logs", lambda: one.launcher.read_logs(one.handle))
    _asked("cancel", lambda: one.launcher.cancel(one.handle, 0.0))


def _asked(method: str, call: Callable[[], _T]) -> _T:
    try:
        return call()
    except ConformanceError:
        raise
    except Exception as error:
        raise ConformanceError(
            expected=f"{method} to know that there is nothing any more",
            got=f"it raised {type(error).__name__}: {error}",
            fix="Treat what is not found as an answer: LaunchStatus(status='lost', message=…), an empty LogChunk.",
        ) from error


@check("launcher.polls", requires=_NEEDED)
def polls(subject: Subject) -> None:
    """Polling reports submitted or running as long as the command runs, and does not wait for its end.

    The program waits until it is allowed to continue. Meanwhile poll is called three times.
    """
    one = launched(subject, Instructions(prints=[(1, b"", "go")]))
    one.started()
    for _ in range(3):
        status = one.launcher.poll(one.handle)
        if status.status not in NOT_OVER or not one.is_running:
            raise ConformanceError(
                expected="submitted or running, while the program runs",
                got=repr(status) + ("" if one.is_running else ", and the program had ended meanwhile"),
                fix="Return running until the engine reports the end; a result.json may be of an earlier attempt.",
            )
    one.open_gate("go")
    one.over()


@check("launcher.flood", requires=_NEEDED)
def flood(subject: Subject) -> None:
    """A command that prints much keeps running, though its output is not read.

    The program prints 4 MiB; read_logs is called only after its end. A launcher that gives its commands a pipe and does
    not read it stops them after 64 KiB, without an error.
    """
    mebibytes = 4
    one = launched(subject, Instructions(flood_mib=mebibytes))
    one.started()
    if not one.gone():
        raise ConformanceError(
            expected=f"a program that prints {mebibytes} MiB to end within {one.patience_seconds:g} s",
            got="it still runs",
            fix="Have its output written to a file; a pipe that is not read is full after 64 KiB.",
        )
    log, _ = one.launcher.read_all(one.handle)
    if log.count("x") < mebibytes * 1024 * 1023:
        raise ConformanceError(
            expected=f"all that it printed in its log: {mebibytes * 1024 * 1023:,} times x",
            got=f"{log.count('x'):,} times",
            fix="Keep the whole log; give it in chunks.",
        )
