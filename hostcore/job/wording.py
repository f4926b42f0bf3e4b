"""Values and near misses in words, for error messages."""

import difflib
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hostcore.secrets.scrub import scrub

#: Longer strings are cut in messages.
_LONGEST = 60


def found(value: Any) -> str:
    """A value as a message shows it: scalars as JSON, containers by their size."""
    if isinstance(value, str):
        value = scrub(value)  # a part of a secret would not be recognized
        text = value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"
        return json.dumps(text, ensure_ascii=False)
    if isinstance(value, Mapping) and list(value) == ["$secret"] and isinstance(value["$secret"], str):
        return f"the secret {value['$secret']}"
    if isinstance(value, Mapping):
        return "an object" if value else "an empty object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    if value is None or isinstance(value, bool | float | int):
        try:
            text = json.dumps(value)
        except ValueError:  # Python refuses to print integers of more than 4,300 digits
            return "an integer of thousands of digits"
        return text if len(text) <= _LONGEST else f"a number of {len(text)} digits"
    return f"a Python {type(value).__name__}"


def one_of(values: Iterable[Any]) -> str:
    """Alternatives as a message lists them: ``"a", "b" or 3``."""
    return alternatives([found(value) for value in values])


def alternatives(words: Collection[str]) -> str:
    """Phrases joined by commas and a last "or"."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def near(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known words that a mistyped one may stand for, nearest first; at most two. Case and ``-`` do not count."""
    names = {_folded(name): name for name in known}
    if _folded(word) in names:
        return (names[_folded(word)],)
    return tuple(names[name] for name in difflib.get_close_matches(_folded(word), names, n=2, cutoff=0.65))


def did_you_mean(words: Collection[str]) -> str | None:
    """The question that a hint asks; None if nothing is near."""
    return f"did you mean {one_of(words)}?" if words else None


def _folded(word: str) -> str:
    return word.casefold().replace("-", "_")
