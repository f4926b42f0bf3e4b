"""A tracker's library in a process of its own, which the reporter calls, and can end.

Libraries of trackers start threads and services, register functions for the interpreter's exit, replace hooks, print,
and read their settings from the environment of the process. Here none of that reaches the supervisor, and what hangs
is killed::

    reporter ─ (method, arguments) ─▶ process ─▶ session.method(**arguments)
             ◀── (kind, answer) ─────

The process ends when the reporter closes it, and soon after the supervisor has died, however it died. It has a folder
of its own for temporary files, which ends with it: libraries leave theirs where they are killed.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final, Protocol

from hostcore_hookspecs import FatalError, HostcoreError, TransientError

#: How often the process looks whether the supervisor lives.
_LOOK_SECONDS: Final = 1.0
#: Characters of the library's output in the error after its process has ended.
_TOLD_CHARACTERS: Final = 300


class LibrarySession(Protocol):
    """Object that a process serves: its other methods can be called from outside."""

    def end(self) -> None:
        """Called last, whatever has happened before."""


class LibraryProcess:
    """The process, seen by its reporter. After an error it has ended: another try begins with another one.

    :param module: What it runs; calls :func:`serve`.
    :param library: For messages.
    :param environment: All of its environment variables.
    :param log: A file, for what it prints; made with its folder, and removed if it is empty in the end.
    :param timeout_seconds: For each answer. The first one also takes the time of importing the library.
    :raises OSError: It cannot be started.
    """

    def __init__(
        self, module: str, *, library: str, environment: Mapping[str, str], log: Path, timeout_seconds: float
    ) -> None:
        self._library, self._log, self._timeout_seconds = library, log, timeout_seconds
        log.parent.mkdir(parents=True, exist_ok=True)
        self._connection, its_end = Pipe()
        self._folder = _TemporaryFolder(f"hostcore-{library.lower()}-")
        arguments = (its_end.fileno(), os.getpid(), timeout_seconds, self._folder.path)
        try:
            with its_end, log.open("ab") as output:
                self._process = subprocess.Popen(
                    # -P: a file or folder of the library's name, where the run was started, is not the library.
                    [sys.executable, "-P", "-m", module, *map(str, arguments)],
                    env={**environment, "TMPDIR": str(self._folder.path)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=[its_end.fileno(), self._folder.lock],
                    start_new_session=True,  # Ctrl-C in the terminal is the supervisor's
                )
        except OSError:
            self._folder.remove()
            raise

    @property
    def is_usable(self) -> bool:
        """True if the process can be called."""
        return not self._connection.closed

    def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of its session.

        :raises TransientError: The process has ended, or does not answer in time; or raised by its session.
        :raises FatalError: Raised by its session.
        """
        is_late = threading.Event()
        # A process that hangs may read only a part of a large call, or write only a part of its answer.
        guard = threading.Timer(self._timeout_seconds, self._end_late, (is_late,))
        guard.daemon = True
        guard.start()
        try:
            self._connection.send((method, arguments))
            answered = self._connection.poll(self._timeout_seconds)
            received: tuple[str, Any] = self._connection.recv() if answered else ("late", None)
        except (OSError, EOFError):
            received = ("late" if is_late.is_set() else "ended", None)
        finally:
            guard.cancel()
        kind, answer = received
        if kind == "answer":
            return answer
        self._kill()
        if kind == "late":
            raise TransientError(f"{self._library} has not answered within {self._timeout_seconds:g} s")
        if kind == "ended":
            raise TransientError(f"the process of {self._library} has ended{self._last_words()}")
        message, hint = answer
        raise (FatalError if kind == "fatal" else TransientError)(message, hint=hint)

    def close(self) -> None:
        """End it: its session ends, or else it is killed."""
        self._connection.close()
        try:
            self._process.wait(self._timeout_seconds)
        except subprocess.TimeoutExpired:
            self._kill()
        else:
            self._folder.remove()
        if self._log.exists() and not self._log.stat().st_size:
            self._log.unlink(missing_ok=True)

    def _end_late(self, is_late: threading.Event) -> None:
        is_late.set()
        self._process.kill()

    def _kill(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()
        self._folder.remove()

    def _last_words(self) -> str:
        printed = self._log.read_bytes()[-_TOLD_CHARACTERS:].decode(errors="replace").split()
        return f": … {' '.join(printed)}" if printed else ""


class _TemporaryFolder:
    """A new folder, locked as long as a process lives that has its lock; the next of its kind removes it after that.

    :param prefix: Of its name; identifies its kind.
    :raises OSError: It cannot be made.
    """

    def __init__(self, prefix: str) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            with suppress(OSError):  # it is in use, another user's, or removed by another process
                lock = _locked(left)
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)
        made = Path(tempfile.mkdtemp(prefix=f".{prefix}"))
        self.lock = _locked(made)
        self.path = made.rename(made.with_name(made.name.removeprefix(".")))  # other processes see it locked only

    def remove(self) -> None:
        """Remove it with all that is in there."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def _locked(folder: Path) -> int:
    """A descriptor of a folder that no other process has locked.

    :raises OSError: It cannot be opened, or it is locked.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def serve(session: LibrarySession) -> None:
    """Main loop of the process: it answers until the reporter closes it or the supervisor has died, and ends.

    Arguments of the command line: the file descriptor of its connection, the supervisor's process id, the seconds that
    its end may take, and its folder for temporary files.
    """
    descriptor, supervisor, seconds, folder = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    threading.Thread(target=_outlive_briefly, args=(supervisor, seconds, folder), daemon=True).start()
    with Connection(descriptor) as connection:
        while (call := _next(connection, supervisor)) is not None:
            method, arguments = call
            answer = _answer(session, method, arguments)
            try:
                connection.send(answer)
            except OSError:  # the supervisor has died during the call
                break
    session.end()
    shutil.rmtree(folder, ignore_errors=True)


def _next(connection: Connection, supervisor: int) -> tuple[str, dict[str, Any]] | None:
    try:
        # A process that the supervisor has forked may hold the other end open after it.
        while not connection.poll(_LOOK_SECONDS):
            if os.getppid() != supervisor:
                return None
        call: tuple[str, dict[str, Any]] = connection.recv()
    except (OSError, EOFError):
        return None
    return call


def _answer(session: LibrarySession, method: str, arguments: Mapping[str, Any]) -> tuple[str, Any]:
    try:
        return "answer", getattr(session, method)(**arguments)
    except HostcoreError as error:
        return "fatal" if isinstance(error, FatalError) else "transient", (error.message, error.hint)
    except Exception as error:  # noqa: BLE001 - whatever the library raises, the reporter raises it
        return "transient", (f"{type(error).__name__}: {error}", None)


def _outlive_briefly(supervisor: int, seconds: float, folder: str) -> None:
    """End the process some time after the supervisor, whatever it is doing."""
    while os.getppid() == supervisor:
        time.sleep(_LOOK_SECONDS)
    time.sleep(seconds)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
