"""Bounds in annotations, such as ``Annotated[float, Gt(0)]``: checked, put in words, and written as JSON Schema."""

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from typing import Any, Final

import annotated_types as at
import attrs

from hostcore_hookspecs.setting_types import Place


@attrs.frozen
class Pattern:
    """A string that must match a regular expression as a whole.

    :param regex: In the dialect that Python and ECMA 262 share, so that the JSON Schema can carry it.
    :param what: What such a string is, in words: ``a run id of letters, digits, ".", "_" and "-"``.
    :param guess: The likely meaning of a string that does not match; None if there is no telling.
    """

    regex: str
    what: str
    guess: Callable[[str], str | None] = lambda _: None

    def accepts(self, value: str) -> bool:
        """Return whether the whole string matches."""
        return re.fullmatch(self.regex, value) is not None

    def suggestion(self, value: str) -> str | None:
        """The guess, if it matches."""
        guessed = self.guess(value)
        return guessed if guessed is not None and self.accepts(guessed) else None


Bound = at.BaseMetadata | Pattern | Place


def _is_multiple(value: Any, unit: Any) -> bool:
    if isinstance(value, int) and isinstance(unit, int):
        return value % unit == 0
    # 0.3 is a multiple of 0.1 within the precision of floats
    return math.isclose(math.remainder(value, float(str(unit))), 0.0, abs_tol=1e-9 * max(1.0, abs(value)))


#: Bounds of numbers: the check of a value and the limit, the words before the limit, the keyword of JSON Schema.
_NUMBERS: Final[Mapping[Any, tuple[Callable[[Any, Any], bool], str, str]]] = {
    at.Gt: (operator.gt, "above", "exclusiveMinimum"),
    at.Ge: (operator.ge, "of at least", "minimum"),
    at.Lt: (operator.lt, "below", "exclusiveMaximum"),
    at.Le: (operator.le, "of at most", "maximum"),
    at.MultipleOf: (_is_multiple, "that is a multiple of", "multipleOf"),
}
#: Bounds of lengths: the check of a length and the limit, the prefix of the keyword.
_LENGTHS: Final[Mapping[Any, tuple[Callable[[Any, Any], bool], str]]] = {
    at.MinLen: (operator.ge, "min"),
    at.MaxLen: (operator.le, "max"),
}
#: ``format`` in JSON Schema: of a path of this machine, and of what may hold a URI as well.
PATH_FORMAT: Final = "path"
PLACE_FORMAT: Final = "place"
#: The rest of the keyword of a length, by JSON type.
_LENGTH_OF: Final = {"string": "Length", "array": "Items", "object": "Properties"}


def bounds_of(metadata: Iterable[Any]) -> tuple[Bound, ...]:
    """The bounds among the metadata of an annotation, groups such as ``Interval`` and ``Len`` taken apart."""
    bounds: list[Bound] = []
    for item in metadata:
        if isinstance(item, Bound):
            bounds.append(item)
        elif isinstance(item, at.GroupedMetadata):  # a protocol: slow to ask
            bounds.extend(bounds_of(item))
    return tuple(bounds)


def holds(bound: Bound, value: Any) -> bool:
    """Return whether a value of the right type keeps a bound; a bound of another type holds (of null, above all)."""
    kind = type(bound)
    if isinstance(bound, Pattern):
        return not isinstance(value, str) or bound.accepts(value)
    if isinstance(bound, at.Predicate):
        return bool(bound.func(value))
    if kind in _NUMBERS and isinstance(value, int | float) and not isinstance(value, bool):
        return _NUMBERS[kind][0](value, _limit(bound))
    if kind in _LENGTHS and isinstance(value, Sized):
        return _LENGTHS[kind][0](len(value), _limit(bound))
    return True


def with_bounds(noun: str, bounds: Sequence[Bound]) -> str:
    """A noun with its bounds: ``an integer of at least 1``, ``a number above 0 and below 1``."""
    noun = next((bound.what for bound in reversed(bounds) if isinstance(bound, Pattern)), noun)
    limits = {type(bound): _limit(bound) for bound in bounds if type(bound) in (*_NUMBERS, *_LENGTHS)}
    phrases = []
    if at.Ge in limits and at.Le in limits:
        phrases.append(f"from {limits.pop(at.Ge)} to {limits.pop(at.Le)}")
    phrases += [f"{words} {limits[kind]}" for kind, (_, words, _) in _NUMBERS.items() if kind in limits]
    phrases += _length_in_words(limits.get(at.MinLen), limits.get(at.MaxLen), noun)
    predicates = [bound.func for bound in bounds if isinstance(bound, at.Predicate)]
    phrases += [f"for which {getattr(function, '__name__', repr(function))} holds" for function in predicates]
    return f"{noun} {' and '.join(phrases)}" if phrases else noun


def _limit(bound: Any) -> Any:
    """The value of a bound that has one alone, such as ``Ge(1)``."""
    return getattr(bound, type(bound).__match_args__[0])


def _length_in_words(shortest: int | None, longest: int | None, noun: str) -> list[str]:
    unit = "elements" if "list" in noun or "object" in noun else "characters"
    if shortest is None and longest is None:
        return []
    if shortest == longest:
        return [f"of exactly {shortest} {unit}"]
    if longest is None:
        return [f"of at least {shortest} {unit[:-1] if shortest == 1 else unit}"]
    return [f"of at most {longest} {unit}" if shortest is None else f"of {shortest} to {longest} {unit}"]


def schema_keywords(kinds: Collection[str], bounds: Sequence[Bound]) -> dict[str, Any]:
    """The JSON Schema keywords of bounds on a value of these JSON types; bounds that have none are left out."""
    keywords: dict[str, Any] = {}
    for bound in bounds:
        if isinstance(bound, Pattern):
            keywords["pattern"] = f"^(?:{bound.regex})$"
        elif isinstance(bound, Place):
            keywords["format"] = PLACE_FORMAT
        elif type(bound) in _NUMBERS:
            keywords[_NUMBERS[type(bound)][2]] = _limit(bound)
        elif type(bound) in _LENGTHS:
            prefix = _LENGTHS[type(bound)][1]
            keywords.update((prefix + rest, _limit(bound)) for kind, rest in _LENGTH_OF.items() if kind in kinds)
    return keywords
