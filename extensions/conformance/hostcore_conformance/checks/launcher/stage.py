"""Tools of the launcher checks: a launch of the kit's own program, and what can be seen of it."""

import fcntl
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs

from hostcore_conformance.checks.launcher import program
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.process.isolated import called_elsewhere
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.launcher import LaunchContext, LaunchHandle, LaunchStatus, LogChunk

#: Statuses that :func:`poll` may return, and those of a launch that is not over.
STATUSES: Final = ("submitted", "running", "succeeded", "failed", "cancelled", "preempted", "lost")
NOT_OVER: Final = ("submitted", "running")

#: The end that a supervisor records.
SUCCEEDED: Final[Mapping[str, Any]] = {"status": "succeeded", "exit_code": 0}

_PATIENCE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.02
_MOST_CHUNKS: Final = 10_000


@attrs.frozen(kw_only=True)
class Instructions:
    """Instructions of the program."""

    #: File descriptor, bytes, and the gate that it waits for before it continues; "" is none.
    prints: Sequence[tuple[int, bytes, str]] = ()
    #: How long it waits at a gate.
    gate_seconds: float = 60.0
    #: What it prints after all that, in MiB.
    flood_mib: int = 0
    #: Whether it stays when it is asked to stop.
    stubborn: bool = False
    #: How long stopping takes it.
    stopping_seconds: float = 0.0
    #: Of its ``result.json``; None: it writes none.
    result: Mapping[str, Any] | None = SUCCEEDED
    #: Below zero: it dies of that signal.
    exit_code: int = 0


def require_programs_run_here(subject: Subject) -> None:
    """See that what the launcher starts runs on this machine, where the kit can look at it.

    :raises NotApplicable: The harness does not declare it. The kit submits nothing to a real cluster unasked.
    """
    if not getattr(subject.harness, "runs_here", False):
        raise NotApplicable(
            "it is not declared that the programs it starts run on this machine: give a harness with runs_here = True"
            " (of a remote launcher, one that emulates the engine and runs the command)",
            wants_example=True,
        )


def patience(subject: Subject) -> float:
    """Return the seconds that the engine may take for anything."""
    return float(getattr(subject.harness, "patience_seconds", _PATIENCE_SECONDS))


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition; whether it came true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def context(
    subject: Subject,
    told: Instructions,
    *,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    run_dir: Path | None = None,
    log: Callable[[str], None] | None = None,
) -> tuple[Path, LaunchContext]:
    """The program's folder, and a launch of it.

    :param run_dir: A new one if not given.
    """
    unheard: list[str] = []
    folder = subject.folder()
    run_dir = run_dir or folder / "run"
    (run_dir / "config").mkdir(parents=True)
    job_path = run_dir / "config" / "run.json"
    job_path.write_text("{}")
    instructions = {**attrs.asdict(told), "run_dir": str(run_dir)}
    instructions["prints"] = [(descriptor, data.hex(), gate) for descriptor, data, gate in told.prints]
    (folder / "instructions.json").write_text(json.dumps(instructions))
    assert program.__file__ is not None
    return folder, LaunchContext(
        job=Job(run_id="conformance"),
        job_path=str(job_path),
        run_dir=str(run_dir),
        command=[sys.executable, "-I", "-S", program.__file__, str(folder), *arguments],
        env=dict(env or {}),
        log=log or unheard.append,
    )


class CheckedLauncher:
    """An instance of the launcher under check, its methods called as the host calls them."""

    def __init__(self, subject: Subject) -> None:
        calls = subject.calls()
        self.plan, self.launch, self.cancel = calls["plan"], calls["launch"], calls["cancel"]
        self._poll, self._read_logs = calls["poll"], calls["read_logs"]

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        """Return the status of the launch.

        :raises ConformanceError: It is no status of the contract.
        """
        status = self._poll(handle)
        if not isinstance(status, LaunchStatus) or status.status not in STATUSES:
            raise ConformanceError(
                expected=f"poll to return a LaunchStatus with one of {', '.join(STATUSES)}",
                got=repr(status),
                fix="Translate the engine's status; what it does not know any more is lost.",
            )
        return status

    def read_logs(self, handle: LaunchHandle, since: str = "") -> LogChunk:
        """A piece of the log.

        :raises ConformanceError: It is none.
        """
        chunk = self._read_logs(handle, since)
        if not (isinstance(chunk, LogChunk) and isinstance(chunk.text, str) and isinstance(chunk.next, str)):
            raise ConformanceError(
                expected="read_logs to return a LogChunk with two strings, text and next",
                got=repr(chunk),
                fix="Decode what was printed, with errors='replace'; next is a string, a byte offset as text perhaps.",
            )
        return chunk

    def read_all(self, handle: LaunchHandle, since: str = "") -> tuple[str, str]:
        """Everything from a place on, and the place after it.

        :raises ConformanceError: It has no end.
        """
        texts: list[str] = []
        for _ in range(_MOST_CHUNKS):
            chunk = self.read_logs(handle, since)
            since = chunk.next
            if not chunk.text:
                return "".join(texts), since
            texts.append(chunk.text)
        raise ConformanceError(
            expected="read_logs to come to the end of the log, where text is empty",
            got=f"text in each of {_MOST_CHUNKS:,} chunks, {sum(map(len, texts)):,} characters, and next {since!r}",
            fix="Give as next the place after the text that was returned, and read from since on.",
        )


@attrs.frozen(kw_only=True, eq=False)
class Launched:
    """A launch of the program."""

    launcher: CheckedLauncher
    handle: LaunchHandle
    folder: Path
    context: LaunchContext
    patience_seconds: float

    def wait_for(self, name: str, what: str) -> Any:
        """Return the content of a file that the program writes into its folder, once it is there.

        :param what: The same in words.
        :raises ConformanceError: It does not come.
        """
        file = self.folder / name
        if not self.until(file.exists):
            self._fail(f"{what} within {self.patience_seconds:g} s of the launch")
        return json.loads(file.read_text())

    def started(self) -> Mapping[str, Any]:
        """Return the program's record of its start: its arguments, its environment.

        :raises ConformanceError: It does not begin.
        """
        record: Mapping[str, Any] = self.wait_for("record.json", "the command to be running")
        return record

    def open_gate(self, name: str) -> None:
        """Let the program go on."""
        (self.folder / name).touch()

    @property
    def is_running(self) -> bool:
        """True if the program runs, by its own lock; once it has started."""
        with (self.folder / "lock").open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def gone(self) -> bool:
        """Wait until the program does not run any more; whether it came to that."""
        return self.until(lambda: not self.is_running)

    def over(self) -> LaunchStatus:
        """Return the launcher's status of the end, once the program is gone.

        :raises ConformanceError: The program stays, or the launcher does not notice.
        """
        self.started()
        if not self.gone():
            self._fail(f"the program to be gone within {self.patience_seconds:g} s")
        if not self.until(lambda: self.launcher.poll(self.handle).status not in NOT_OVER):
            raise ConformanceError(
                expected=f"poll to report the end within {self.patience_seconds:g} s of the program's end",
                got=repr(self.launcher.poll(self.handle)),
                fix="Ask the engine each time; a process that is a zombie has ended.",
            )
        return self.launcher.poll(self.handle)

    def until(self, condition: Callable[[], bool]) -> bool:
        """Wait for a condition as long as the engine may take; whether it came true."""
        return until(condition, self.patience_seconds)

    def _fail(self, expected: str) -> NoReturn:
        status = self.launcher.poll(self.handle)
        log = self.launcher.read_logs(self.handle).text
        raise ConformanceError(
            expected=expected,
            got=f"nothing of it; poll returns {status.status} {status.message!r}, and the log {log[-400:]!r}",
            fix="Start exactly ctx.command, a list of arguments, with ctx.env added to the environment.",
        )


def launched(subject: Subject, told: Instructions | None = None, **how: Any) -> Launched:
    """Have the launcher start the program.

    :param how: See :func:`context`.
    :raises NotApplicable: Its programs do not run here.
    """
    require_programs_run_here(subject)
    folder, ctx = context(subject, told or Instructions(), **how)
    launcher = subject.shared("launcher", lambda: CheckedLauncher(subject))
    return _launched(subject, launcher, launcher.launch(ctx), folder, ctx)


def launched_elsewhere(subject: Subject) -> Launched:
    """The program, launched by a process that is gone with all its group. Made once.

    It prints ``before``, waits for the gate ``on``, prints ``after``, and waits for the gate ``go``.
    """

    def launch() -> Launched:
        folder, ctx = context(subject, Instructions(prints=[(1, b"before\n", "on"), (1, b"after\n", "go")]))
        handle = called_elsewhere(subject, "launch", attrs.evolve(ctx, log=print))
        stored = LaunchHandle(**json.loads(json.dumps(attrs.asdict(handle))))
        one = _launched(subject, CheckedLauncher(subject), stored, folder, ctx)
        one.started()
        return one

    require_programs_run_here(subject)
    return subject.shared("launched elsewhere", launch)


def _launched(
    subject: Subject, launcher: CheckedLauncher, handle: LaunchHandle, folder: Path, ctx: LaunchContext
) -> Launched:
    return Launched(launcher=launcher, handle=handle, folder=folder, context=ctx, patience_seconds=patience(subject))
