"""Ends of the records of a text: rows of CSV, lines, and elements of a JSON array.

Nothing is decoded here. A text begins where a record begins, and may end anywhere.
"""

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

#: Offsets in a text, in order.
Offsets = npt.NDArray[np.int64]

_NEWLINE, _RETURN, _BACKSLASH = b"\n\r\\"
_LINE_END = re.compile(rb"\r\n|\n|\r")
#: What brackets add to the depth of a JSON text; commas and quotes add nothing, and are looked at as well.
_STEP = np.zeros(256, np.int8)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1
_IS_STRUCTURE = _STEP != 0
_IS_STRUCTURE[list(b',"')] = True


class TextTrouble(Exception):
    """Raised for text that is not what it should be, by those who do not know the file and its lines.

    :param offset: Where, in the text that was looked at.
    :param message: What is wrong there: ``has 2 fields``.
    :param hint: What to do about it.
    """

    def __init__(self, offset: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message
        self.hint = hint


def count_lines(text: bytes) -> int:
    """Return the number of lines that end in a text; a lone carriage return ends one, too."""
    returns = text.count(b"\r")
    return text.count(b"\n") + (returns - text.count(b"\r\n") if returns else 0)


def column_of(text: bytes, offset: int) -> int:
    """The column of an offset in its line, counted from 1, in bytes."""
    begin = 0
    for found in _LINE_END.finditer(text, 0, offset):
        begin = found.end()
    return offset - begin + 1


def _array(text: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text, np.uint8) if text else np.zeros(0, np.uint8)


def require_utf8(text: bytes) -> None:
    """Raise :class:`TextTrouble` about the first byte that is not UTF-8."""
    try:
        if not text.isascii():
            text.decode()
    except UnicodeDecodeError as error:
        message = f"byte {column_of(text, error.start)} of the line (0x{text[error.start]:02x}) is not UTF-8"
        hint = "write the file as UTF-8: iconv -f ISO-8859-1 -t UTF-8, if that is what it is"
        raise TextTrouble(error.start, message, hint) from error


def line_ends(text: bytes) -> Offsets:
    """Return the ends of lines: the offsets just past each newline."""
    return np.flatnonzero(_array(text) == _NEWLINE) + 1


def row_ends(text: bytes, *, delimiter: str, quote: str, at_end: bool) -> Offsets:
    """Return the ends of rows of CSV (RFC 4180): the offsets just past the newline, the carriage return, or both.

    A line end within quotes is none. That follows from the number of quotes before it, which is right as long as quotes
    stand around whole fields only.

    :param quote: Empty if there are no quotes.
    :param at_end: Whether nothing comes after the text. Otherwise a carriage return at its very end is left open.
    :raises TextTrouble: For a quote inside a field that does not begin with one, and for one that is never closed.
    """
    data = _array(text)
    ends = np.flatnonzero(data == _NEWLINE) + 1
    if b"\r" in text:
        returns = np.flatnonzero(data == _RETURN) + 1
        if not at_end:
            returns = returns[returns < len(data)]
        alone = (returns == len(data)) | (data[np.minimum(returns, len(data) - 1)] != _NEWLINE)
        ends = np.union1d(ends, returns[alone])
    if quote and quote.encode() in text:
        quotes = np.flatnonzero(data == ord(quote))
        opening = quotes[::2]
        before = data[np.maximum(opening - 1, 0)]
        stray = opening[(opening > 0) & ~_may_precede_quote(delimiter, quote)[before]]
        if len(stray):
            message = f"has a {quote} within a field that does not begin with one"
            hint = f'put such a field in quotes and write {quote}{quote}; where quotes mean nothing, set "quote": ""'
            raise TextTrouble(int(stray[0]), message, hint)
        if at_end and len(quotes) % 2:
            message = f"has a {quote} that is never closed"
            raise TextTrouble(int(quotes[-1]), message, 'the file may be truncated; or set "quote": ""')
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return ends


@lru_cache(maxsize=8)
def _may_precede_quote(delimiter: str, quote: str) -> npt.NDArray[np.bool_]:
    """Which bytes may stand before an opening quote; another quote may, since two of them stand for one."""
    allowed = np.zeros(256, np.bool_)
    allowed[list(f"{delimiter}{quote}\r\n".encode())] = True
    return allowed


def element_ends(text: bytes) -> Offsets:
    """Return the ends of a JSON array's elements: the offsets just past the comma, or past the bracket that closes it.

    :param text: Begins inside the array, where an element begins.
    """
    data = _array(text)
    places = np.flatnonzero(_IS_STRUCTURE[data])
    letters = data[places]
    is_quote = letters == ord('"')
    is_quote &= ~_follows_odd_backslashes(data, places)
    is_outside = np.cumsum(is_quote, dtype=np.int32) % 2 == 0
    depth = np.cumsum(_STEP[letters] * is_outside, dtype=np.int32)
    is_end = (letters == ord(",")) & is_outside & (depth == 0)
    closing = np.flatnonzero(depth == -1)[:1]
    if len(closing):
        is_end[closing[0] :] = False
        is_end[closing[0]] = True
    found: Offsets = places[is_end] + 1
    return found


def _follows_odd_backslashes(data: npt.NDArray[np.uint8], places: Offsets) -> npt.NDArray[np.bool_]:
    """Return True for each place right behind an odd number of backslashes, where a quote ends no string."""
    backslashes = np.flatnonzero(data == _BACKSLASH)
    if not len(backslashes):
        return np.zeros(len(places), np.bool_)
    numbers = np.arange(len(backslashes))
    begins_run = np.diff(backslashes, prepend=-2) > 1
    run_start = np.maximum.accumulate(np.where(begins_run, numbers, 0))
    last = np.searchsorted(backslashes, places) - 1
    follows = (last >= 0) & (backslashes[last] == places - 1)
    found: npt.NDArray[np.bool_] = follows & ((last - run_start[last]) % 2 == 0)
    return found


def first_failing(ends: Offsets, fails: Callable[[int], bool]) -> int:
    """The number of the first record that makes a text fail, found by halving.

    :param fails: Whether the text up to an offset fails; it does so for all larger ones then.
    """
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if fails(int(ends[middle])):
            high = middle
        else:
            low = middle + 1
    return low
