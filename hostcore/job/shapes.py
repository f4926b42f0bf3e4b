"""Which JSON a bare annotation takes, and how messages say so."""

import typing
from collections import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from hostcore.job.bounds import in_words
from hostcore.job.forms import arms, bare, choices, is_union, object_form
from hostcore.job.secrets import SecretText
from hostcore.job.wording import alternatives, found
from hostcore_hookspecs.secret import Secret

#: The JSON type of scalar annotations.
_SCALARS: Mapping[Any, str] = {
    str: "string",
    Path: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    None: "null",
}

_NOUNS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}

#: What to build for an array annotation. A plain ``Sequence`` becomes a tuple, since settings are values.
_ARRAYS: Mapping[Any, Callable[[Iterable[Any]], Collection[Any]]] = {
    tuple: tuple,
    list: list,
    set: set,
    frozenset: frozenset,
    abc.Sequence: tuple,
    abc.Collection: tuple,
    abc.Iterable: tuple,
    abc.MutableSequence: list,
    abc.Set: frozenset,
    abc.MutableSet: set,
}

_OBJECTS = (dict, abc.Mapping, abc.MutableMapping)


@attrs.frozen(kw_only=True)
class Array:
    """The form of a JSON array."""

    #: The annotation of every element; for a fixed array, of each.
    items: tuple[Any, ...]
    fixed: bool = False
    #: Makes the Python container.
    build: Callable[[Iterable[Any]], Collection[Any]]

    @property
    def unique(self) -> bool:
        """Whether equal elements are wrong."""
        return self.build in (set, frozenset)


def array_of(form: Any) -> Array | None:
    """How a bare annotation takes an array; None if it does not."""
    origin = typing.get_origin(form) or form
    build = _ARRAYS.get(origin) if isinstance(origin, abc.Hashable) else None
    if build is None:
        return None
    items = typing.get_args(form)
    if origin is tuple and items and not (len(items) == 2 and items[1] is Ellipsis):
        return Array(items=() if items == ((),) else items, fixed=True, build=build)
    return Array(items=items[:1] or (Any,), build=build)


def mapping_of(form: Any) -> tuple[Any, Any] | None:
    """The annotations of the keys and values that a bare annotation takes as an object; None if it does not."""
    if (typing.get_origin(form) or form) not in _OBJECTS:
        return None
    return typing.cast("tuple[Any, Any]", typing.get_args(form) or (str, Any))


def json_types(form: Any) -> frozenset[str]:
    """The JSON types that an annotation takes, by their names in JSON Schema; empty if it takes none."""
    form, _ = bare(form)
    if form is Any or form is object:
        return frozenset(_NOUNS) | {"array", "object"}
    if is_union(form):
        return frozenset().union(*(json_types(arm) for arm in arms(form)))
    if (values := choices(form)) is not None:
        return frozenset(json_type_of(value) for value in values)
    if form is Secret:
        return frozenset({"object"})
    if form in _SCALARS:
        return frozenset({_SCALARS[form]})
    if array_of(form):
        return frozenset({"array"})
    if mapping_of(form):
        return frozenset({"object"})
    if isinstance(form, type) and attrs.has(form):
        return frozenset({"object", "string"} if object_form(form).shorthand else {"object"})
    return frozenset()


def json_type_of(value: Any) -> str:
    """The JSON type of a plain value."""
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, list | tuple):
        return "array"
    if isinstance(value, SecretText):
        return "string"
    return _SCALARS.get(type(value), "")


def expected(form: Any) -> str:
    """What an annotation takes, in words: ``an integer of at least 1 or "epoch"``."""
    form, bounds = bare(form)
    if is_union(form):
        taken = [arm for arm in arms(form) if bare(arm)[0] not in (None, type(None))]  # null goes without saying
        noun = alternatives([expected(arm) for arm in taken])
    elif (values := choices(form)) is not None:
        noun = alternatives([found(value) for value in values])
    elif form is Path:
        noun = "a path"
    elif form is Secret:
        noun = 'a reference to a secret, such as {"$secret": "env:NAME"}'
    elif form in _SCALARS:
        noun = _NOUNS[_SCALARS[form]]
    elif (array := array_of(form)) is not None:
        noun = _array_in_words(array)
    elif isinstance(form, type) and attrs.has(form) and object_form(form).shorthand:
        noun = "a string or an object"
    else:
        noun = "an object" if json_types(form) == {"object"} else "a value"
    return in_words(noun, bounds)


def _array_in_words(array: Array) -> str:
    if array.fixed:
        return f"a list of {len(array.items)} element{'' if len(array.items) == 1 else 's'}"
    plural = {"string": "strings", "integer": "integers", "number": "numbers", "array": "lists", "object": "objects"}
    kinds = json_types(array.items[0])
    (kind,) = kinds if len(kinds) == 1 else ("",)
    return f"a list of {plural[kind]}" if kind in plural else "a list"


def is_enum(form: Any) -> bool:
    """Whether a bare annotation is an enumeration."""
    return isinstance(form, type) and issubclass(form, Enum)
