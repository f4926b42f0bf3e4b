"""Standard streams of this process, without secrets."""

import atexit
import os
import sys
import threading
from collections.abc import Iterable
from functools import cached_property
from typing import Any, TextIO, cast

from hostcore.secrets.scrub import SecretFilter, when_known


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

    For a process whose output goes to a file.

    :raises OSError: When there are no more descriptors.
    """
    from hostcore.secrets.output import ScrubbedOutput, redirect_output

    def redirect(into: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        redirect_output(into)

    def finish() -> None:
        redirect(file)
        output.settle()

    file, output = os.dup(1), ScrubbedOutput(1)
    redirect(output.pipe)
    output.close()
    atexit.register(finish)


def _scrubbed(stream: TextIO) -> TextIO:
    # A process may have been started without any.
    return stream if stream is None or isinstance(stream, _ScrubbedStream) else cast("TextIO", _ScrubbedStream(stream))


class _ScrubbedStream:
    """A stream of text or bytes that hides secrets, also in pieces; in all else the stream behind it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._filter = SecretFilter()
        self._lock = threading.RLock()
        atexit.register(self._finish)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @cached_property
    def buffer(self) -> "_ScrubbedStream":
        """The bytes behind a text stream."""
        return _ScrubbedStream(self._stream.buffer)

    def write(self, piece: Any) -> int:
        """Write what can be shown of a piece."""
        with self._lock:
            if isinstance(piece, str):
                self._stream.write(_text(self._filter.feed(piece.encode(errors="surrogatepass"))))
            else:
                self._stream.write(self._filter.feed(bytes(piece)))
        return len(piece)

    def writelines(self, lines: Iterable[Any]) -> None:
        """Write one after the other."""
        for line in lines:
            self.write(line)

    def _finish(self) -> None:
        """Write what may have been the beginning of a secret."""
        with self._lock:
            rest = self._filter.finish()
            if rest and not self._stream.closed:
                self._stream.write(_text(rest) if hasattr(self._stream, "encoding") else rest)
                self._stream.flush()


def _text(shown: bytes) -> str:
    return shown.decode(errors="surrogatepass")
