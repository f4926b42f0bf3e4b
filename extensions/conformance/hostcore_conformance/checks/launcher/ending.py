"""That a launcher tells how a launch has ended."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from hostcore_conformance.check import check
from hostcore_conformance.checks.launcher.stage import NOT_OVER, Instructions, launched
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject

_T = TypeVar("_T")

_NEEDED: Final = ("launcher.launches",)

#: By variant: what the program does, and what may be said of it.
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


@check("launcher.ends", requires=_NEEDED, variants=tuple(_ENDS))
def ends(subject: Subject, variant: str) -> None:
    """Polling tells how a launch has ended: its status, and its exit code where it can be known.

    The program ends in five ways: with a result that says succeeded, failed (exit code 1) or preempted (75); with exit
    code 3 and no result.json; killed by SIGKILL. The first three are what result.json in the run directory says. The
    other two are failed, or lost if the engine does not say how it went; never succeeded. The exit code may be None;
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

    The program ends, and its run directory is removed, log and result included. poll must then say lost or failed, the
    log may be empty, and cancel has nothing to do.

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
    """Polling says submitted or running as long as the command runs, and does not wait for its end.

    The program waits until it is allowed to go on. Meanwhile poll is asked three times.
    """
    one = launched(subject, Instructions(prints=[(1, b"", "go")]))
    one.started()
    for _ in range(3):
        status = one.launcher.poll(one.handle)
        if status.status not in NOT_OVER or not one.is_running:
            raise ConformanceError(
                expected="submitted or running, while the program runs",
                got=repr(status) + ("" if one.is_running else ", and the program had ended meanwhile"),
                fix="Say running until the engine says that it has ended; a result.json may be of an earlier attempt.",
            )
    one.open_gate("go")
    one.over()


@check("launcher.flood", requires=_NEEDED)
def flood(subject: Subject) -> None:
    """A command that prints much goes on, though its output is not read.

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
