"""Asking a plugin its checks in a process of its own, which the plugin may kill or hang.

Results of a process before it died are kept: the check that it was making has failed, and another process makes
the rest. This side imports no plugin, and no torch.
"""

import os
import select
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Final

import attrs

from hostcore.interruption import signal_name
from hostcore.plugins.installed import distribution_on
from hostcore.secrets.reference import remember_secrets
from hostcore.secrets.scrub import scrub
from hostcore_conformance.process.exchange import (
    Begun,
    CheckRequest,
    Done,
    Ended,
    Event,
    Opened,
    Printed,
    Refused,
    decode,
)
from hostcore_conformance.result import CheckResult
from hostcore_hookspecs.errors import HostcoreError

_LOOK_SECONDS: Final = 0.1
#: From the traceback of a check that hangs to its end.
_TRACEBACK_SECONDS: Final = 1.0
#: The same on a machine that is busy, if there is no traceback by then.
_LATE_TRACEBACK_SECONDS: Final = 10.0
#: How long the process may take to close what the checks have opened.
_CLOSING_SECONDS: Final = 10.0
_LAST_LINES: Final = 20
_KIT: Final = "hostcore-conformance"


class CheckingFailed(HostcoreError):
    """The process that makes the checks ended before it could begin."""

    code = "conformance.process"


def require_kit(python: str, path: Sequence[str]) -> None:
    """Require that another Python has this kit, in this version.

    :param path: Where it looks for modules.
    :raises CheckingFailed: When it has not.
    """
    own = metadata.version(_KIT)
    try:
        there = distribution_on(path, _KIT).version
    except metadata.PackageNotFoundError:
        there = "is missing"
    if there != own:
        raise CheckingFailed(
            f"{python} cannot make the checks of this kit: {_KIT} {there}",
            hint=f'both have one version: add "{_KIT}=={own}" to the requirements of the environment',
        )


def ask(request: CheckRequest, python: str = sys.executable) -> Generator[Event, None, None]:
    """Make the checks of a plugin in another process.

    :param python: What runs them. It must have the kit in this version, and the plugin.
    :return: What happens, as it happens: ``Opened`` or ``Refused`` first, then ``Begun`` and ``Ended`` for each check,
        ``Printed`` in between. Closing the generator ends the process.
    :raises CheckingFailed: It cannot be started, or ended before the plugin was found.
    """
    known: list[CheckResult] = []
    remember_secrets([request.settings])
    with tempfile.TemporaryDirectory(prefix="hostcore-checks-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        fatal: CheckResult | None = None
        opened: Opened | None = None
        while True:
            asked = attrs.evolve(request, known=tuple(known), fatal=fatal, trace=str(folder / "trace"))
            with _CheckProcess(asked, folder, python) as process:
                for event in process.events():
                    if isinstance(event, Opened):
                        remember_secrets(event.example)
                        if opened is not None:
                            continue  # the process continues
                        opened = event
                    elif isinstance(event, Ended):
                        known.append(event.result)
                    yield event
                if process.finished:
                    return
                if opened is None:
                    raise process.failure()
                fatal = _fatal(process, opened, known)


def _fatal(process: "_CheckProcess", opened: Opened, known: list[CheckResult]) -> CheckResult:
    """The result of the check during which a process ended; of the next one if it was between two."""
    asked = {result.id for result in known}
    left = next((id_ for id_ in opened.ids if id_ not in asked), None)
    if left is None:
        raise process.failure()
    begun = process.begun or Begun(id=left, title="", level="must")
    return process.verdict(begun)


class _CheckProcess:
    """A process that makes checks. A context manager: afterwards it is gone, with all that it has started.

    :param folder: For everything that it writes; its temporary files too.
    :param python: What it runs in.
    """

    def __init__(self, request: CheckRequest, folder: Path, python: str) -> None:
        self._request = request
        self._trace = Path(request.trace)
        self._output = folder / "output"
        self._shown = self._output.stat().st_size if self._output.exists() else 0
        #: Where the output of the check that is being made begins.
        self._from = self._shown
        self._deadline: float | None = None
        self._hung = False
        self._lines = b""
        #: The check that is being made.
        self.begun: Begun | None = None
        #: Whether all its messages have come.
        self.finished = False
        self._answers, theirs = os.pipe()
        try:
            with self._output.open("ab") as output:
                self._process = subprocess.Popen(
                    # -P: no module of the working directory may shadow one of the host.
                    # -u: what is printed is there when the process dies.
                    [python, "-u", "-P", "-m", "hostcore_conformance.process.child", str(theirs)],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    pass_fds=[theirs],
                    start_new_session=True,
                    # What is left behind by a process that is killed goes with the folder.
                    env={**os.environ, "TMPDIR": str(folder)},
                )
        except OSError as error:
            os.close(self._answers)
            raise CheckingFailed(f"{python} cannot be started: {error.strerror or error}") from error
        finally:
            os.close(theirs)
        os.set_blocking(self._answers, False)

    def __enter__(self) -> "_CheckProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if kind is not None and not issubclass(kind, HostcoreError) and not self._has_ended():
                # Asked to stop: what the plugin's author has opened for the checks can be closed.
                self._process.send_signal(signal.SIGINT)
                self._wait(_TRACEBACK_SECONDS)
        finally:
            self._kill()
            os.close(self._answers)

    def events(self) -> Iterator[Event]:
        """Yield its events, until it has ended or is ended because it hangs."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(self._request.encode())
        while True:
            select.select([self._answers], [], [], _LOOK_SECONDS)
            ended = self._has_ended()  # before the last look: it sends nothing afterwards
            for line in self._new_lines():
                event = decode(line)
                self._note(event)
                if isinstance(event, Begun | Ended):
                    yield from self._printed(event.printed)  # which belongs to what was before
                yield event
            yield from self._printed()
            if ended or self._is_late():
                return

    def _note(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, Begun):
            self.begun = event
            self._from = event.printed
            self._deadline = now + self._request.timeout_seconds + _TRACEBACK_SECONDS
        elif isinstance(event, Ended):
            self.begun = self._deadline = None
        elif isinstance(event, Done | Refused):
            self.finished = True
            self._deadline = now + _CLOSING_SECONDS

    def _new_lines(self) -> list[bytes]:
        with suppress(BlockingIOError):
            while data := os.read(self._answers, 1 << 16):
                self._lines += data
        *lines, self._lines = self._lines.split(b"\n")
        return lines

    def _printed(self, until: int | None = None) -> Iterator[Printed]:
        with self._output.open("rb") as output:
            output.seek(self._shown)
            text = output.read() if until is None else output.read(max(0, until - self._shown))
        if text:
            self._shown += len(text)
            yield Printed(text=text.decode(errors="replace"))

    def _is_late(self) -> bool:
        if self._deadline is None or (now := time.monotonic()) < self._deadline:
            return False
        if not self.finished and not self._read_trace() and now < self._deadline + _LATE_TRACEBACK_SECONDS:
            return False  # the traceback is what helps
        self._hung = not self.finished
        return True

    def _has_ended(self) -> bool:
        if self._process.returncode is not None:
            return True
        # It stays a zombie, so that its process group is still its own when it is killed.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._has_ended() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS / 2)

    def _kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def verdict(self, begun: Begun) -> CheckResult:
        """Return the result of the check that it was making when it ended."""
        trace = self._read_trace()
        place = _place(trace)
        at = f" at {place}" if place else ""
        if self._hung:
            got = f"the check was not over after {self._request.timeout_seconds:g} seconds{at}"
            fix = "Look for what waits there without a limit; on a slow machine, give it longer: --timeout SECONDS."
        else:
            self._kill()
            got = f"the process died ({_how(self._process.returncode)}) while this was checked{at}"
            fix = (
                "Look for native code that crashes; the traceback (-v) shows where it was."
                if trace
                else "Look for os._exit, or for what sends signals: nothing that a plugin does may end the process."
            )
        return CheckResult(
            id=begun.id,
            status="failed",
            level=begun.level,
            message=f"{got}. {fix}",
            expected=begun.title,
            got=got,
            fix=fix,
            traceback=trace,
            seconds=self._request.timeout_seconds if self._hung else 0.0,
        )

    def failure(self) -> CheckingFailed:
        """Its end, where no check can be blamed for it."""
        self._kill()
        with self._output.open("rb") as output:
            output.seek(self._from)
            lines = scrub(output.read().decode(errors="replace")).strip().splitlines()
        error = CheckingFailed(
            f"the process that makes the checks died ({_how(self._process.returncode)}) before the first of them"
            + (f": {lines[-1]}" if lines else ""),
            hint="-v shows what it printed.",
        )
        error.traceback = "\n".join([*lines[-_LAST_LINES:], self._read_trace()])  # type: ignore[attr-defined]
        return error

    def _read_trace(self) -> str:
        with suppress(FileNotFoundError):
            return scrub(self._trace.read_text(errors="replace"))
        return ""


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal_name(-code)


def _place(trace: str) -> str:
    """Return the place of a process, in the plugin's code if it was there: ``trainer.py:30, in train_step``.

    :param trace: As faulthandler writes it: the thread that crashed is the current one; without, the main one is last.
    """
    threads = [block for block in trace.split("\n\n") if "\n  File " in block]
    current = [block for block in threads if block.lstrip().startswith("Current thread")]
    thread = (current or threads or [""])[-1]
    frames = [_frame(line) for line in thread.splitlines() if line.startswith("  File ")]
    ours = (sysconfig.get_path("stdlib"), str(Path(__file__).parent.parent) + os.sep, "<")
    own = [frame for frame in frames if not frame[0].startswith(ours) or "site-packages" in frame[0]]
    if not frames:
        return ""
    file, line, function = (own or frames)[0]
    return f"{Path(file).name}:{line}, in {function}"


def _frame(line: str) -> tuple[str, str, str]:
    file, _, rest = line.strip().removeprefix('File "').partition('", line ')
    number, _, function = rest.partition(" in ")
    return file, number, function
