"""The output of a process on its way into a file, with stars in place of secrets.

The process writes into a pipe, and a thread of its supervisor copies the pipe into the file: what C code and child
processes write is hidden, too. A worker holds the pipe's other end as well. When its supervisor is gone, the worker
copies its output itself: it neither blocks nor fails on a write, and its last lines arrive.
"""

import os
import threading
from contextlib import suppress
from typing import Final

from hostcore.secrets.scrub import SecretFilter

_CHUNK_BYTES: Final = 64 * 1024
#: How long to wait for the last output of a process that has ended; a process that it has started may still write.
_LAST_OUTPUT_SECONDS: Final = 2.0


class ScrubbedOutput:
    """A pipe into a file, copied by a thread of this process. To be closed once the writer has it.

    :param file: A descriptor.
    :raises OSError: When there are no more descriptors.
    """

    def __init__(self, file: int) -> None:
        self._source, self.pipe = os.pipe()
        #: Nothing is written here: its end is that of this process, or of the copying.
        self._turn, self._ours = os.pipe()
        self._file = os.dup(file)
        self._thread = threading.Thread(target=self._copy, daemon=True, name="scrubbed output")
        self._thread.start()

    @property
    def inherited(self) -> tuple[int, int, int]:
        """The descriptors that a writer needs for :func:`copy_after`."""
        return self._turn, self._source, self._file

    def close(self) -> None:
        """Close the ends that belong to the writer."""
        os.close(self.pipe)
        os.close(self._turn)

    def settle(self) -> None:
        """Wait a moment until everything that was written is in the file."""
        self._thread.join(_LAST_OUTPUT_SECONDS)

    def _copy(self) -> None:
        _copy(self._source, self._file)
        for descriptor in (self._source, self._file, self._ours):
            os.close(descriptor)


def copy_after(turn: int, source: int, file: int) -> threading.Thread:
    """Copy a pipe into a file as soon as the process that did so is gone.

    :param turn: See :attr:`ScrubbedOutput.inherited`.
    """

    def copy() -> None:
        os.read(turn, 1)
        _copy(source, file)

    thread = threading.Thread(target=copy, daemon=True, name="scrubbed output")
    thread.start()
    return thread


def redirect_output(into: int) -> None:
    """Write the standard output and standard error of this process into another file."""
    for descriptor in (1, 2):
        os.dup2(into, descriptor)


def _copy(source: int, file: int) -> None:
    """Copy until the last writer has closed the pipe. What a full disk does not take is lost: no writer waits."""
    output = SecretFilter()
    while piece := os.read(source, _CHUNK_BYTES):
        _write(file, output.feed(piece))
    _write(file, output.finish())


def _write(file: int, text: bytes) -> None:
    with suppress(OSError):
        while text:
            text = text[os.write(file, text) :]
