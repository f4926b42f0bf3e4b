"""Output of launched commands, copied to a second stream."""

import codecs
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hostcore_builtin_plugins.run_result import read_log
from hostcore_hookspecs import FatalError, LogChunk

_CHUNK_BYTES: Final = 1 << 16
_LOOK_SECONDS: Final = 0.1


class Following:
    """Copies what is appended to a file to standard output, from now on, until it is left.

    Whole characters in UTF-8 alone: an engine that reads them as text fails at anything else.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._copy, daemon=True)

    def __enter__(self) -> "Following":
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.touch()
        self._read = self._file.open("rb")
        self._read.seek(0, os.SEEK_END)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._read.close()

    def _copy(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            last = self._over.is_set()  # before reading: what was written until then is still read
            while data := self._read.read(_CHUNK_BYTES):
                _write(decoder.decode(data))
            if last:
                _write(decoder.decode(b"", final=True))
                return
            self._over.wait(_LOOK_SECONDS)


def read_logs(files: Sequence[Path], since: str) -> LogChunk:
    """A piece of what the agents of a run have printed, in whole lines.

    Rank 0 prints the output of the run. Its node is decided where the agents meet: it need not be the first.

    :param files: One for each node.
    :param since: A byte offset for each, separated by commas; empty for the beginning.
    :raises FatalError: If ``since`` is not that.
    """
    offsets = since.split(",") if since else [""] * len(files)
    if len(offsets) != len(files):
        told = f"{since!r} is no place in {len(files)} logs"
        raise FatalError(told, hint="pass what the chunk before gave as 'next'")
    chunks = [read_log(file, at, whole_lines=len(files) > 1) for file, at in zip(files, offsets, strict=True)]
    return LogChunk(text="".join(one.text for one in chunks), next=",".join(one.next for one in chunks))


def _write(text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(1, data) :]
