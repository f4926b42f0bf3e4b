"""The form of a JSON value, read from an attrs class or an annotation, and how messages name it."""

import functools
import types
import typing
from collections import abc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Union

import attrs

from hostcore.job.bounds import Bound, bounds_of, in_words
from hostcore.job.names import IMPORT_PATH
from hostcore.job.objects import asked_of, is_import_path
from hostcore.job.wording import alternatives, found
from hostcore.secrets.reference import SecretText
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.setting_types import Secret

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
class Key:
    """One key of an object."""

    name: str
    #: The annotation of its value.
    form: Any
    attribute: "attrs.Attribute[Any]"

    @property
    def required(self) -> bool:
        """Whether an object without it is wrong."""
        return self.attribute.default is attrs.NOTHING


@attrs.frozen(kw_only=True)
class ObjectForm:
    """The keys of an object that is structured into an attrs class."""

    keys: Mapping[str, Key]
    #: The argument that takes all other keys; None if other keys are wrong.
    rest: str | None = None
    #: The key that a plain string stands for.
    shorthand: str | None = None


@functools.lru_cache(maxsize=256)
def object_form(cls: type[attrs.AttrsInstance]) -> ObjectForm:
    """Read the form of an attrs class.

    :raises HostcoreError: ``settings.class`` if its annotations cannot be resolved.
    """
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise HostcoreError(
            f"the annotations of {qualified_name(cls)} cannot be resolved: {error}",
            code="settings.class",
            hint="whatever its annotations name must be imported when the module runs, outside `if TYPE_CHECKING:`",
        ) from error
    keys: dict[str, Key] = {}
    rest = shorthand = None
    for attribute in attrs.fields(cls):
        argument = attribute.alias or attribute.name
        if not attribute.init or attribute.metadata.get("key") is False:
            continue
        if attribute.metadata.get("rest"):
            rest = argument
            continue
        if attribute.metadata.get("shorthand"):
            shorthand = argument
        untyped = Any if attribute.type is None else attribute.type
        keys[argument] = Key(name=argument, form=hints.get(attribute.name, untyped), attribute=attribute)
    return ObjectForm(keys=keys, rest=rest, shorthand=shorthand)


def bare(form: Any) -> tuple[Any, tuple[Bound, ...]]:
    """An annotation without ``Annotated``, ``Final``, ``NewType`` and ``type`` aliases, and the bounds inside them."""
    bounds: tuple[Bound, ...] = ()
    while True:
        if typing.get_origin(form) is Annotated:
            bounds = (*bounds_of(form.__metadata__), *bounds)
            form = form.__origin__
        elif typing.get_origin(form) is typing.Final:
            (form,) = typing.get_args(form)
        elif isinstance(form, NewType):
            form = form.__supertype__
        elif hasattr(form, "__value__"):  # `type Name = ...`, Python 3.12
            form = form.__value__
        else:
            return form, bounds


def is_union(form: Any) -> bool:
    """Whether a bare form is ``A | B`` or ``Optional[A]``."""
    return typing.get_origin(form) in (Union, types.UnionType)


def arms(form: Any) -> Iterator[Any]:
    """The alternatives of a union, those of unions inside it included."""
    for arm in typing.get_args(form):
        inner, bounds = bare(arm)
        if is_union(inner) and not bounds:
            yield from arms(inner)
        else:
            yield arm


def choices(form: Any) -> tuple[Any, ...] | None:
    """The JSON values that a bare ``Literal`` or ``Enum`` admits; None for other forms."""
    if typing.get_origin(form) is Literal:
        return tuple(value.value if isinstance(value, Enum) else value for value in typing.get_args(form))
    if isinstance(form, type) and issubclass(form, Enum):
        return tuple(member.value for member in form)
    return None


def qualified_name(cls: Any) -> str:
    """How messages name a class: ``my_trainer.Trainer.Hyperparams``."""
    return f"{cls.__module__}.{cls.__qualname__}" if isinstance(cls, type) else str(cls)


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
    if is_import_path(form):
        return frozenset({"string"})
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
    elif is_import_path(form):
        noun = f"{IMPORT_PATH.what} of {asked_of(form).noun}"
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
