"""Asking a process of its own, which may hang in a driver or die of it; an answer comes back in any case.

The process writes one JSON object a line on standard output. ``{"doing": "…"}`` says what comes next, so that it is
known where it got stuck; ``{"error": "…"}`` is the last line of one that could not go on; the rest is the answer.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Final

import attrs
import orjson

#: A killed process is gone after this time, or it is held by a driver or a file server and not waited for.
_DEATH_SECONDS: Final = 2.0
#: What it wrote before it ended is read by then, on a busy machine too; what it started may keep its pipes open longer.
_READ_SECONDS: Final = 3.0
_KEPT_LINES: Final = 40


@attrs.frozen(kw_only=True)
class Answer:
    """What a process said before it ended, or before its time was over."""

    lines: Sequence[Mapping[str, Any]]
    #: Why there is no more; None: it is complete.
    trouble: str | None = None
    #: Whether it had to be killed.
    hung: bool = False
    #: The end of its standard error.
    output: str = ""

    def all(self, key: str) -> list[Any]:
        """Everything that it said under a key."""
        return [line[key] for line in self.lines if key in line]

    def last(self, key: str) -> Any:
        """What it said last under a key; None if nothing."""
        return next(iter(reversed(self.all(key))), None)


class Probe:
    """A question that was put to a process; a context manager that ends it.

    :param module: What the worker's interpreter runs.
    :param environment: All of it; None for that of this process.
    :param pass_fds: File descriptors that the process inherits.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._started = time.monotonic()
        self._said: deque[bytes] = deque()
        self._errors: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._readers: list[threading.Thread] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._not_started = ""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,  # it ends when this process does, and with it the probe
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        except OSError as error:
            self._not_started = f"no process can be started for it: {error.strerror or error}"
            return
        # Threads: a process that outlives its killing keeps the pipes open, and must not keep this one.
        for stream, into in ((self._process.stdout, self._said), (self._process.stderr, self._errors)):
            assert stream is not None
            reader = threading.Thread(target=_read, args=(stream, into), daemon=True)
            reader.start()
            self._readers.append(reader)

    def __enter__(self) -> "Probe":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._kill()

    @property
    def seconds(self) -> float:
        """How long ago it was started."""
        return time.monotonic() - self._started

    @property
    def code(self) -> int | None:
        """How it ended, as in ``subprocess``; None while it runs."""
        return 1 if self._process is None else self._process.poll()

    def answer(self, timeout_seconds: float) -> Answer:
        """Wait for its end.

        :param timeout_seconds: From its start on. After that it is killed.
        """
        if self._process is None:
            return Answer(lines=(), trouble=self._not_started)
        ended, hung = "", False
        try:
            code = self._process.wait(max(0.0, timeout_seconds - self.seconds))
            if code:
                ended = f"the process was killed by {_name(-code)}" if code < 0 else f"the process exited with {code}"
        except subprocess.TimeoutExpired:
            ended, hung = f"no answer within {timeout_seconds:g} s", True
            if not self._kill():
                ended += ", and its process cannot be killed"
        read_by = time.monotonic() + _READ_SECONDS
        for reader in self._readers:
            reader.join(max(0.0, read_by - time.monotonic()))
        return self._told(ended, hung=hung)

    def _told(self, ended: str, *, hung: bool) -> Answer:
        # The interpreter's own start may print something before the probe can keep it from doing so.
        lines = [orjson.loads(line) for line in tuple(self._said) if line.startswith(b"{") and line.endswith(b"}\n")]
        answer = Answer(lines=lines, hung=hung, output=b"".join(tuple(self._errors)).decode(errors="replace"))
        trouble = answer.last("error") or ended
        if trouble and answer.last("doing"):
            trouble = f"{trouble} (while {answer.last('doing')})"
        return attrs.evolve(answer, trouble=trouble or None)

    def _kill(self) -> bool:
        """End the process and what it started. Whether it is gone."""
        if self._process is None:
            return True
        with suppress(ProcessLookupError, PermissionError):  # all are gone
            os.killpg(self._process.pid, signal.SIGKILL)
        try:
            self._process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True


def _read(stream: IO[bytes], into: "deque[bytes]") -> None:
    with stream:
        into.extend(stream)


def _name(number: int) -> str:
    """``SIGKILL``; a real-time signal has a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
