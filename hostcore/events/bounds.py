"""The bounds of a record: a plugin's text can have any length, and every reader has to hold the record it stands in.

Texts are bounded where records are made. Records of older versions may still be too long: :class:`TextCutter` bounds
the texts of one that comes in pieces, before it is parsed.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from hostcore.secrets.scrub import scrub
from hostcore_hookspecs.errors import RunError

#: Of a text, in bytes of UTF-8, with the words that stand for what is left out.
MOST_TEXT: Final = 8 << 10
#: Of a traceback.
MOST_TRACEBACK: Final = 32 << 10
#: Of a name: the key of a mapping, such as the name of a metric.
MOST_NAME: Final = 512
#: Of the texts of some keys. What names a metric is cut as the metric's own name is.
_MOST: Final = {"traceback": MOST_TRACEBACK, "metric": MOST_NAME, "nonfinite": MOST_NAME}
#: The words that stand for what is left out are not longer.
_WORDS: Final = 64


def bounded(text: str, most: int = MOST_TEXT) -> str:
    """A text; of one that is too long its head and its tail, and between them how much is left out.

    Secrets are hidden before it is cut: a part of one would not be recognized.

    :param most: In bytes of UTF-8. What is returned has no more, so bounding it again changes nothing.
    """
    if 4 * len(text) <= most or (len(text) <= most and len(text.encode(errors="replace")) <= most):
        return text
    text, half = scrub(text), (most - _WORDS) // 2
    # Cut before it is encoded: the text may have gigabytes.
    head = text[:half].encode(errors="replace")[:half].decode(errors="ignore")
    tail = text[-half:].encode(errors="replace")[-half:].decode(errors="ignore")
    left_out = len(text) - len(head) - len(tail)
    return f"{head} [… {left_out:,} characters left out …] {tail}" if left_out > 0 else text


def bounded_error(error: RunError) -> RunError:
    """The error of a run with all of its texts bounded."""
    return RunError(**bounded_record(attrs.asdict(error)))


def bounded_record(value: Any, most: int = MOST_TEXT) -> Any:
    """Plain JSON with all of its texts bounded, keys included.

    :param most: Of a text, in bytes.
    """
    if isinstance(value, str):
        return bounded(value, most)
    if isinstance(value, Mapping):
        return {bounded(key, MOST_NAME): bounded_record(item, _MOST.get(key, MOST_TEXT)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [bounded_record(item, most) for item in value]
    return value


class TextCutter:
    """Cuts the texts of a JSON record that comes in pieces, so that it stays one, in bounded memory.

    :param most: Of the whole record, in bytes: one that is longer even so is dropped.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._record = bytearray()
        #: The beginning of an escape sequence or of a character, in which a piece ended.
        self._held = b""
        self._in_text = False
        #: How much of the present text still fits, and how much of it is left out.
        self._room = self._left_out = 0

    @property
    def record(self) -> bytes | None:
        """The record; None if it is too long without its texts, too."""
        return bytes(self._record) if len(self._record) <= self._most else None

    def feed(self, piece: bytes) -> None:
        """Take in the next piece."""
        piece = self._held + piece
        held = _UNFINISHED.search(piece)
        self._held = held[1] if held else b""
        for part in _PARTS.finditer(piece, 0, len(piece) - len(self._held)):
            if len(self._record) > self._most:
                return
            self._take(part[0])

    def _take(self, part: bytes) -> None:
        if part == b'"':
            if self._left_out:
                self._record += f" [… {self._left_out:,} bytes left out …]".encode()
            self._in_text = not self._in_text
            self._room, self._left_out = MOST_TEXT - _WORDS, 0
        elif self._in_text and (self._left_out or len(part) > self._room):
            # Whole characters and whole escape sequences alone.
            fits = b"" if self._left_out or part[:1] == b"\\" else part[: self._room]
            kept = fits.decode(errors="ignore").encode()
            self._left_out += len(part) - len(kept)
            part = kept
        elif self._in_text:
            self._room -= len(part)
        self._record += part


#: What JSON is made of, as far as texts go: plain parts, escape sequences, quotes.
_PARTS: Final = re.compile(rb'[^"\\]+|\\u[0-9a-fA-F]{4}|\\.|"', re.DOTALL)
#: What the end of a piece may cut: an escape sequence, behind an even number of backslashes, or a character of UTF-8.
_UNFINISHED: Final = re.compile(rb"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?|[\xc0-\xff][\x80-\xbf]{0,3})\Z")
