"""The readings of a string: as it is, and as some program would take it after decoding it."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from urllib.parse import unquote

#: What is still different after so many rounds was made to be.
_MOST_ROUNDS: Final = 6
#: What every place has one of; ``..`` is one itself.
_SUSPICIOUS: Final = re.compile(r"[/\\:~%]|^\.\.$|^[0-9]+\.[0-9.]+$|[^\x20-\x7e]")
_IGNORED: Final = re.compile(r"[\t\r\n]")
_CONTROL: Final = "".join(map(chr, range(0x21)))


def _as_urllib_trims(text: str) -> str:
    """Without tabs and line breaks, which URL parsers drop wherever they stand, and without spaces around."""
    return _IGNORED.sub("", text).strip().strip(_CONTROL)


def _unwrapped(text: str) -> str:
    """``<URL:…>``, ``<…>`` and ``URL:…``, as RFC 1738 advised to write URLs and urllib still reads them."""
    inner = text[1:-1].strip() if text.startswith("<") and text.endswith(">") else text
    return inner[4:].strip() if inner[:4].upper() == "URL:" else inner


def _slashed(text: str) -> str:
    return text.replace("\\", "/")


def _folded(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


#: What programs do to a text before they use it, with and without folding it first.
_PLAIN: Final[tuple[Callable[[str], str], ...]] = (_as_urllib_trims, _unwrapped, unquote)
_FOLDING: Final = (_folded, *_PLAIN)


def readings(text: str) -> Iterator[str | None]:
    """Every reading of a text, each once. One is None if there are more than anybody needs.

    Nothing for a text that cannot be a place in any of them.
    """
    if not _SUSPICIOUS.search(text):
        return
    seen: set[str | None] = set()
    for steps in (_PLAIN,) if text.isascii() and "%" not in text else (_PLAIN, _FOLDING):
        for one in _decoded(text, steps):
            # What reads a backslash as a slash may read the same text as what does not.
            for reading in (one,) if one is None else (one, _slashed(one)):
                if reading not in seen:
                    seen.add(reading)
                    yield reading


def _decoded(text: str, steps: Sequence[Callable[[str], str]]) -> Iterator[str | None]:
    """A text, and what comes of it with each step, until nothing changes any more; else None at the end."""
    yield text
    for _ in range(_MOST_ROUNDS):
        before = text
        for step in steps:
            text = step(text)
            yield text
        if text == before:
            return
    yield None
