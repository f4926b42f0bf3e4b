"""Bounds in annotations (``Annotated[float, Gt(0)]``): checked, put in words, and written as JSON Schema."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import annotated_types as at
import attrs


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
        """Whether the whole string matches."""
        return re.fullmatch(self.regex, value) is not None

    def suggestion(self, value: str) -> str | None:
        """The guess, if it matches."""
        guessed = self.guess(value)
        return guessed if guessed is not None and self.accepts(guessed) else None


Bound = at.BaseMetadata | Pattern


def bounds_of(metadata: Iterable[Any]) -> tuple[Bound, ...]:
    """The bounds among the metadata of an annotation, groups such as ``Interval`` and ``Len`` taken apart."""
    bounds: list[Bound] = []
    for item in metadata:
        if isinstance(item, at.BaseMetadata | Pattern):
            bounds.append(item)
        elif isinstance(item, at.GroupedMetadata):  # a protocol: slow to ask
            bounds.extend(bounds_of(item))
    return tuple(bounds)


def holds(bound: Bound, value: Any) -> bool:
    """Whether a value of the right type keeps a bound. What a bound cannot speak of, it lets pass (null, above all)."""
    match bound:
        case Pattern():
            return not isinstance(value, str) or bound.accepts(value)
        case at.Predicate():
            return bool(bound.func(value))
        case at.MinLen() | at.MaxLen():
            if not isinstance(value, str | Sequence | Mapping | frozenset | set):
                return True
            return len(value) >= bound.min_length if isinstance(bound, at.MinLen) else len(value) <= bound.max_length
        case at.Gt() | at.Ge() | at.Lt() | at.Le() | at.MultipleOf():
            return isinstance(value, bool) or not isinstance(value, int | float) or _number_holds(bound, value)
    return True


def _number_holds(bound: at.BaseMetadata, value: Any) -> bool:
    match bound:
        case at.Gt(limit):
            return bool(value > limit)
        case at.Ge(limit):
            return bool(value >= limit)
        case at.Lt(limit):
            return bool(value < limit)
        case at.Le(limit):
            return bool(value <= limit)
        case at.MultipleOf(unit) if isinstance(value, int) and isinstance(unit, int):
            return value % unit == 0
        case at.MultipleOf(unit):  # 0.3 is a multiple of 0.1, as far as floats can tell
            return math.isclose(math.remainder(value, float(str(unit))), 0.0, abs_tol=1e-9 * max(1.0, abs(value)))
    return True


def in_words(noun: str, bounds: Sequence[Bound]) -> str:
    """A noun with its bounds: ``an integer of at least 1``, ``a number above 0 and below 1``."""
    for bound in bounds:
        if isinstance(bound, Pattern):
            noun = bound.what
    phrases = [*_range_in_words(bounds), *_length_in_words(bounds, noun)]
    for bound in bounds:
        match bound:
            case at.MultipleOf(unit):
                phrases.append(f"that is a multiple of {unit}")
            case at.Predicate():
                phrases.append(f"for which {getattr(bound.func, '__name__', repr(bound.func))} holds")
    return f"{noun} {' and '.join(phrases)}" if phrases else noun


def _range_in_words(bounds: Sequence[Bound]) -> list[str]:
    limits = {kind: _last(bounds, kind, kind.__name__.lower()) for kind in (at.Gt, at.Ge, at.Lt, at.Le)}
    if limits[at.Ge] is not None and limits[at.Le] is not None:
        return [f"from {limits[at.Ge]} to {limits[at.Le]}"]
    words = {at.Gt: "above", at.Ge: "of at least", at.Lt: "below", at.Le: "of at most"}
    return [f"{words[kind]} {limit}" for kind, limit in limits.items() if limit is not None]


def _length_in_words(bounds: Sequence[Bound], noun: str) -> list[str]:
    shortest, longest = _last(bounds, at.MinLen, "min_length"), _last(bounds, at.MaxLen, "max_length")
    unit = "elements" if "list" in noun or "object" in noun else "characters"
    if shortest is None and longest is None:
        return []
    if shortest == longest:
        return [f"of exactly {shortest} {unit}"]
    if longest is None:
        return [f"of at least {shortest} {unit[:-1] if shortest == 1 else unit}"]
    return [f"of at most {longest} {unit}" if shortest is None else f"of {shortest} to {longest} {unit}"]


def _last(bounds: Sequence[Bound], kind: type[at.BaseMetadata], attribute: str) -> Any:
    values = [getattr(bound, attribute) for bound in bounds if isinstance(bound, kind)]
    return values[-1] if values else None


#: The JSON Schema keywords of a length, by JSON type.
_LENGTHS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def schema_keywords(json_types: Iterable[str], bounds: Sequence[Bound]) -> dict[str, Any]:
    """The JSON Schema keywords of bounds on a value of these JSON types; bounds that have none are left out."""
    keywords: dict[str, Any] = {}
    lengths = [_LENGTHS[kind] for kind in json_types if kind in _LENGTHS]
    for bound in bounds:
        match bound:
            case at.Ge(limit):
                keywords["minimum"] = limit
            case at.Gt(limit):
                keywords["exclusiveMinimum"] = limit
            case at.Le(limit):
                keywords["maximum"] = limit
            case at.Lt(limit):
                keywords["exclusiveMaximum"] = limit
            case at.MultipleOf(unit):
                keywords["multipleOf"] = unit
            case at.MinLen(length):
                keywords.update((shortest, length) for shortest, _ in lengths)
            case at.MaxLen(length):
                keywords.update((longest, length) for _, longest in lengths)
            case Pattern(regex):
                keywords["pattern"] = f"^(?:{regex})$"
    return keywords
