"""One pass through a text: it is cut into stretches of whole records, and these are looked at one after the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import pyarrow as pa

from hostcore_builtin_plugins.sources.file_dataset import looks_like, not_of_format
from hostcore_builtin_plugins.sources.files import DataFile
from hostcore_builtin_plugins.sources.text_records import Offsets, TextTrouble, count_lines, require_utf8
from hostcore_builtin_plugins.stores.errors import data_errors
from hostcore_hookspecs import InvalidData

#: A stretch of text that is read at once, about.
STRETCH_BYTES = 2 << 20
#: The rows of it, at most.
STRETCH_ROWS = 65_536
#: A single record, at most.
RECORD_BYTES = 64 << 20

#: Enough to tell what a file is.
_HEAD_BYTES = 16
_PACKED = {b"\x1f\x8b": ".gz", b"(\xb5/\xfd": ".zst"}
#: The byte order mark of UTF-8, which means nothing, and those of other encodings.
_MARK = b"\xef\xbb\xbf"
_OTHER_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class TextReader(Protocol):
    """Reads the records of one file, or of a stretch of it."""

    #: How records are told apart; kept in the index.
    records: str

    def ends(self, text: bytes, *, at_end: bool) -> Offsets:
        """Return the ends of records.

        :raises TextTrouble: They cannot be found.
        """

    def infer(self, text: bytes, ends: Offsets, known: pa.Schema | None) -> tuple[pa.Schema, int]:
        """Look at whole records: the columns with types that fit these and all before, and the number of rows.

        :param known: What is known from the records before, as this method returned it.
        :raises TextTrouble: If a value does not fit.
        """

    def read(self, text: bytes, schema: pa.Schema) -> pa.Table:
        """Some columns of whole records, with their types."""


class Start(Protocol):
    """See :class:`TextScan`."""

    def __call__(self, text: bytes, *, at_end: bool) -> tuple[TextReader, int] | None:
        """Look at the beginning of a text, or at all of it."""


class TextScan:
    """One pass through the text of a file. What is wrong with it is an :class:`InvalidData` that names the line.

    :param source: The text, from its beginning.
    :param start: Looks at how the text begins: its reader, and where the first record is; None if that takes more.
    :param format_name: What messages call a file of the format.
    """

    def __init__(self, file: DataFile, source: pa.NativeFile, start: Start, format_name: str) -> None:
        self._file = file
        self._source = source
        self._start = start
        self._format_name = format_name
        self._reader: TextReader | None = None
        #: Lines that ended before the text in hand.
        self._lines = 0

    @property
    def records(self) -> str:
        """See :class:`TextIndex`."""
        return self._reader.records if self._reader else ""

    def infer(self, text: bytes, ends: Offsets, known: pa.Schema | None) -> tuple[pa.Schema, int]:
        """See :class:`TextReader`."""
        assert self._reader is not None
        with self._located(text):
            require_utf8(text)
            found = self._reader.infer(text, ends, known)
        self._lines += count_lines(text)
        return found

    def stretches(self) -> Iterator[tuple[int, bytes, Offsets]]:
        """All records: where a stretch of them begins, its text, and where its records end."""
        position, rest = self._begin()
        at_end = self._reader is None  # there is nothing but white space
        while not at_end:
            # As much again of a record that does not end, so that each byte is looked at a few times at most.
            block = self._read(min(len(rest), RECORD_BYTES + 1 - len(rest)))
            at_end = not block
            text = rest + block
            assert self._reader is not None
            with self._located(text):
                ends = self._reader.ends(text, at_end=at_end)
                if at_end and text and (not len(ends) or ends[-1] < len(text)):
                    ends = np.append(ends, len(text))  # the last line need not end
            done = int(ends[-1]) if len(ends) else 0
            for begin, end, own in _cut(ends):
                yield position + begin, text[begin:end], own
            rest, position = text[done:], position + done
            self._require_short(rest)

    def _begin(self) -> tuple[int, bytes]:
        """Find the reader: the position of the first record, and what was read from there on."""
        text, at_end, position = b"", False, 0
        while self._reader is None and not at_end:
            block = self._read(max(_HEAD_BYTES, min(len(text), RECORD_BYTES + 1 - len(text))))
            at_end = not block
            if not text:
                self._require_text(block)
                position = len(_MARK) if block.startswith(_MARK) else 0
                block = block[position:]
            text += block
            with self._located(text):
                started = self._start(text, at_end=at_end)
            if started:
                self._reader, begin = started
                self._lines += count_lines(text[:begin])
                return position + begin, text[begin:]
            self._require_short(text)
        return position, b""

    def _read(self, least: int) -> bytes:
        with data_errors(self._file.name):
            return bytes(self._source.read(max(STRETCH_BYTES, least)))

    def _require_text(self, head: bytes) -> None:
        """Refuse what is no text at all, and the encodings that have a mark."""
        packed = next((ending for magic, ending in _PACKED.items() if head.startswith(magic)), None)
        if packed:
            hint = f"it looks packed: give its name the ending {packed}, and it is unpacked while it is read"
            raise InvalidData(f"{self._file.name} is not {self._format_name}", file=self._file.name, hint=hint)
        if looks_like(head):
            raise not_of_format(self._file, self._format_name)
        encoding = next((name for mark, name in _OTHER_MARKS.items() if head.startswith(mark)), None)
        if encoding:
            hint = f"write it as UTF-8: iconv -f {encoding} -t UTF-8"
            raise InvalidData(f"{self._file.name} is {encoding}, not UTF-8", file=self._file.name, hint=hint)

    def _require_short(self, rest: bytes) -> None:
        if len(rest) > RECORD_BYTES:
            limit = f"{RECORD_BYTES >> 20} MiB"
            raise InvalidData(
                f"{self._file.name}, line {self._lines + 1}: a record does not end within {limit}, which is the limit",
                file=self._file.name,
                hint="a quote that is never closed does that; else keep such large values in files of their own",
            )

    @contextmanager
    def _located(self, text: bytes) -> Iterator[None]:
        """Add the file and the line to an error."""
        try:
            yield
        except TextTrouble as trouble:
            line = self._lines + count_lines(text[: trouble.offset]) + 1
            raise InvalidData(
                f"{self._file.name}, line {line}: {trouble.message}", file=self._file.name, hint=trouble.hint
            ) from trouble


def _cut(ends: Offsets) -> Iterator[tuple[int, int, Offsets]]:
    """Cut records into stretches of few enough rows: begin and end of each, and where its own records end."""
    begin = 0
    for part in np.array_split(ends, -(-len(ends) // STRETCH_ROWS)) if len(ends) else ():
        end = int(part[-1])
        yield begin, end, part - begin
        begin = end
