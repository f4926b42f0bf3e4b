"""What this process itself prints, and what plugins print in it, without secrets."""

import atexit
import os
import sys
import threading
from collections.abc import Iterable
from typing import Any, BinaryIO, TextIO, cast

from hostcore.secrets.scrub import HIDDEN, Stream, known_forms, scrub_bytes, when_known


def open_closed_streams() -> None:
    """Open ``/dev/null`` for the standard streams that this process was started without. To be called first of all.

    A file opened later would get the number of a closed stream, and receive what is printed to it. What has nowhere
    to be printed is lost; the run's logs and ``result.json`` have it.
    """
    for descriptor, mode in enumerate("rww"):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)  # gets the lowest number that is free
            os.set_inheritable(descriptor, True)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def hide_secrets() -> None:
    """Scrub what Python code prints in this process, as soon as it knows a secret."""
    when_known(scrub_streams)


def scrub_streams() -> None:
    """Scrub what Python code prints from now on."""
    sys.stdout, sys.stderr = _scrubbed(sys.stdout), _scrubbed(sys.stderr)


def scrub_descriptors() -> None:
    """Scrub whatever is printed from now on, by C code and by other processes as well.

    For a process whose output goes to a file: its last words may arrive after its end.

    :raises OSError: When the process that does it cannot be started.
    """
    from hostcore.supervisor.workers.scrubbed_output import ScrubbedOutput

    sys.stdout.flush()
    sys.stderr.flush()
    scrubbed = ScrubbedOutput(1)
    for descriptor in (1, 2):
        os.dup2(scrubbed.fileno(), descriptor)
    scrubbed.close()


def _scrubbed(stream: TextIO) -> TextIO:
    if stream is None or isinstance(stream, _Scrubbed):  # a process may have been started without any
        return stream
    made = _Scrubbed(stream)
    atexit.register(made.finish)
    return cast("TextIO", made)


class _Scrubbed:
    """A text stream that hides secrets, also those that come in pieces; in all else the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._scrubber = Stream(known_forms(), HIDDEN)
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> "_ScrubbedBytes":
        """For bytes; a secret that comes in pieces is not found there."""
        return _ScrubbedBytes(self._stream.buffer)

    def write(self, text: str) -> int:
        """Write what can be shown of a text."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self._lock:
            self._scrubber.forms = known_forms()
            self._stream.write(self._scrubber.feed(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write one after the other."""
        for line in lines:
            self.write(line)

    def finish(self) -> None:
        """Write what may have been the beginning of a secret."""
        with self._lock:
            rest = self._scrubber.finish()
            if rest and not self._stream.closed:
                self._stream.write(rest)
                self._stream.flush()


class _ScrubbedBytes:
    """The bytes behind a text stream."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: bytes) -> int:
        """Write bytes of UTF-8."""
        self._stream.write(scrub_bytes(bytes(data)))
        return len(data)
