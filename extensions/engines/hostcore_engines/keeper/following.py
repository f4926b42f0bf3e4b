"""What a launched command prints, told a second time."""

import codecs
import os
import threading
from pathlib import Path
from typing import Final

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


def _write(text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(1, data) :]
