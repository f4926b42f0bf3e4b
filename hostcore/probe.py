"""Ask a separate Python process, which may hang or die; an answer comes back in any case.

Plugins are imported, drivers started and disks written to in such processes. In: a module to run, and a question, if
it takes one: a line of JSON on its standard input. Out: JSON objects, a line each, on its standard output.
``{"doing": "…"}`` names the next step, so that it is known where the process got stuck; ``{"error": "…"}`` is the last
line of a process that failed; the rest is the answer.

The process ends when it has answered, when its time is over and, if it uses :func:`answer`, when the process that asked
is gone; with a session of its own, so does all that it has started.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Protocol

import attrs
import orjson

from hostcore.events.strict_json import dump
from hostcore.interruption import end_session, signal_name

#: A killed process is gone after this time, or it is held by a driver or a file server and not waited for.
_DEATH_SECONDS: Final = 2.0
#: What it wrote before it ended is read by then, on a busy machine too; what it started may keep its pipes open longer.
_READ_SECONDS: Final = 3.0
#: Of its standard error.
_KEPT_BYTES: Final = 1 << 20


@attrs.frozen(kw_only=True)
class Answer:
    """Output of a process until its end, or until its time was over."""

    lines: Sequence[Mapping[str, Any]]
    #: The reason why there is no more; None: it is complete.
    trouble: str | None = None
    #: Why the process could not be started; empty if it was.
    not_started: str = ""
    #: Whether it had to be killed.
    hung: bool = False
    #: The end of its standard error.
    output: str = ""

    def all(self, key: str) -> list[Any]:
        """Return all values under a key."""
        return [line[key] for line in self.lines if key in line]

    def last(self, key: str) -> Any:
        """Return the last value under a key; None if there is none."""
        return next(iter(reversed(self.all(key))), None)


class Probe:
    """A question that was put to a process; a context manager that ends it.

    :param module: What the interpreter runs.
    :param question: A line of JSON; empty: the module is asked nothing.
    :param environment: All of it; None for that of this process.
    :param cwd: Its working directory; None for that of this process.
    :param pass_fds: File descriptors that the process inherits.
    :param own_session: Whether what it starts ends with it; if not, it belongs to the group of this process: Ctrl-C and
        what kills the group reach it.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        question: str = "",
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
        own_session: bool = True,
    ) -> None:
        self._started = time.monotonic()
        self._own_session = own_session
        self._said: deque[bytes] = deque()
        self._errors: deque[bytes] = deque()
        self._readers: list[threading.Thread] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._not_started = ""
        try:
            self._process = subprocess.Popen(
                # -P: no module of the working directory may shadow one of the host.
                [python, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,  # it ends when this process does, and with it the probe
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd=cwd,
                pass_fds=pass_fds,
                start_new_session=own_session,
            )
        except OSError as error:
            self._not_started = str(error.strerror or error)
            return
        # Threads: a process that outlives its killing keeps the pipes open, and must not keep this one; nor must one
        # that does not read its question.
        self._readers = [
            _in_background(_read, self._process.stdout, self._said),
            _in_background(_read_end, self._process.stderr, self._errors),
        ]
        if question:
            _in_background(_ask, self._process.stdin, question.encode() + b"\n")

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    @property
    def seconds(self) -> float:
        """Return the seconds since its start."""
        return time.monotonic() - self._started

    @property
    def code(self) -> int | None:
        """Return the exit code, as in ``subprocess``; None while it runs."""
        return 1 if self._process is None else self._process.poll()

    def answer(self, timeout_seconds: float) -> Answer:
        """Wait for its end.

        :param timeout_seconds: From its start on. After that it is killed.
        """
        if self._process is None:
            trouble = f"no process can be started for it: {self._not_started}"
            return Answer(lines=(), trouble=trouble, not_started=self._not_started)
        ended, hung = "", False
        try:
            code = self._process.wait(max(0.0, timeout_seconds - self.seconds))
            if code:
                ended = (
                    f"the process was killed by {signal_name(-code)}" if code < 0 else f"the process exited with {code}"
                )
        except subprocess.TimeoutExpired:
            ended, hung = f"no answer within {timeout_seconds:g} s", True
            if not self._kill():
                ended += ", and its process cannot be killed"
        read_by = time.monotonic() + _READ_SECONDS
        for reader in self._readers:
            reader.join(max(0.0, read_by - time.monotonic()))
        return self._told(ended, hung=hung)

    def _told(self, ended: str, *, hung: bool) -> Answer:
        lines = [found for line in tuple(self._said) if (found := _object_in(line)) is not None]
        answer = Answer(lines=lines, hung=hung, output=b"".join(tuple(self._errors)).decode(errors="replace"))
        trouble = answer.last("error") or ended
        if trouble and answer.last("doing"):
            trouble = f"{trouble} (while {answer.last('doing')})"
        return attrs.evolve(answer, trouble=trouble or None)

    def _kill(self) -> bool:
        """End the process, and with its session what it started. Whether it is gone."""
        if self._process is None:
            return True
        with suppress(ProcessLookupError, PermissionError):  # all are gone
            os.killpg(self._process.pid, signal.SIGKILL) if self._own_session else self._process.kill()
        try:
            self._process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True


def _object_in(line: bytes) -> Any:
    """The object; None for what the start of the interpreter has printed, and for a line without its end."""
    if not line.startswith(b"{") or not line.endswith(b"}\n"):
        return None
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _in_background(action: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=action, args=arguments, daemon=True)
    thread.start()
    return thread


def _read(stream: IO[bytes], into: "deque[bytes]") -> None:
    with stream:
        into.extend(stream)


def _read_end(stream: IO[bytes], into: "deque[bytes]") -> None:
    """Keep the newest lines, of a bounded size: a plugin may print without end."""
    size = 0
    with stream:
        for line in iter(lambda: stream.readline(_KEPT_BYTES), b""):
            into.append(line)
            size += len(line)
            while size > _KEPT_BYTES:
                size -= len(into.popleft())


def _ask(stream: IO[bytes], question: bytes) -> None:
    with suppress(BrokenPipeError):  # its exit code is the better error
        _write(stream.fileno(), question)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class Say(Protocol):
    """Send an object to the asking process at once."""

    def __call__(self, **content: Any) -> None:
        """Write a JSON object on a line of its own."""


def answer(examine: Callable[[Say], None]) -> None:
    """In the process: send the findings of a probe to standard output, and end. Other output goes to stderr.

    :param examine: What to do. An exception is sent as ``{"error": …}``, and the exit code is 1.
    """
    told, asking = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    with open(os.devnull) as nothing:  # noqa: PTH123 - what asks for input gets none
        os.dup2(nothing.fileno(), 0)
    _in_background(_end_with, asking)

    def say(**content: Any) -> None:
        _write(told, dump(content))

    try:
        examine(say)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever is wrong with this machine is the answer
        traceback.print_exc()
        say(error=f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}")
        _leave(1)
    _leave(0)


def _end_with(asking: int) -> None:
    """End with all that was started here when the process that asked is gone: its end of standard input is closed."""
    while os.read(asking, 1):
        pass
    end_session()


def _leave(code: int) -> None:
    sys.stderr.flush()
    # Not sys.exit: a driver's or a plugin's exit handlers and threads must not change the exit code of an answer.
    os._exit(code)
