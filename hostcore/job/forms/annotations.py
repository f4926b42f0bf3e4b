"""From an annotation, or an attrs class, to its form; and the conversion and the schema of a whole class."""

import functools
import types
import typing
from collections import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NewType, TypeVar, cast

import attrs

from hostcore.errors import Errors
from hostcore.job.bounds import Bound, bounds_of
from hostcore.job.forms.containers import Array, KeyedValues, Union
from hostcore.job.forms.form import SCALARS, CheckObject, Form, Reading, kind_of, unchecked
from hostcore.job.forms.import_path import ImportedObject
from hostcore.job.forms.objects import Key, Object, qualified_name
from hostcore.job.forms.scalars import Anything, Choice, LocalPath, Scalar, SecretValue, Unsupported
from hostcore.job.pointers import moved
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.setting_types import ImportPath, Secret

T = TypeVar("T")

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
#: The container of an array annotation. A plain ``Sequence`` becomes a tuple, since settings are values.
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
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)


def form_of(annotation: Any) -> Form:
    """Return the form of an annotation.

    Not cached: ``int | str`` and ``str | int`` are equal, and so are ``Gt(0)`` and ``Gt(0.0)``; their forms are not.
    :func:`object_form` is cached, by class.

    :raises HostcoreError: ``settings.class`` if the annotations of an attrs class cannot be resolved.
    """
    bare, bounds = _without_bounds(annotation)
    return attrs.evolve(_bare_form(bare), bounds=bounds) if bounds else _bare_form(bare)


def _without_bounds(annotation: Any) -> tuple[Any, tuple[Bound, ...]]:
    """An annotation without ``Annotated``, ``Final``, ``NewType`` and ``type`` aliases, and the bounds inside them."""
    bounds: tuple[Bound, ...] = ()
    while True:
        if typing.get_origin(annotation) is Annotated:
            bounds = (*bounds_of(annotation.__metadata__), *bounds)
            annotation = annotation.__origin__
        elif typing.get_origin(annotation) is typing.Final:
            (annotation,) = typing.get_args(annotation)
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__"):  # `type Name = ...`, Python 3.12
            annotation = annotation.__value__
        else:
            return annotation, bounds


def _bare_form(annotation: Any) -> Form:
    if not isinstance(annotation, abc.Hashable):
        return Unsupported(name=str(annotation))
    origin, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if annotation is Any or annotation is object:
        return Anything()
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        return _choice(arguments)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _choice(tuple(annotation))
    if annotation is Secret:
        return SecretValue()
    if annotation is Path:
        return LocalPath()
    if origin is ImportPath:
        return ImportedObject(annotation=annotation)
    if origin in _ARRAYS:
        return _array(origin, arguments)
    if origin in _MAPPINGS:
        return KeyedValues(parts=tuple(map(form_of, arguments or (str, Any))))
    if isinstance(annotation, type) and attrs.has(annotation):
        return object_form(annotation)
    scalar = type(None) if annotation is None else annotation
    if scalar in SCALARS:
        return Scalar(type=scalar, kinds=frozenset({SCALARS[scalar][0]}))
    return Unsupported(name=qualified_name(annotation))


def _union(arguments: tuple[Any, ...]) -> Union:
    forms = [form_of(argument) for argument in arguments]
    options = tuple(option for form in forms for option in ((form,) if form.bounds else form.arms))
    return Union(options=options, kinds=frozenset().union(*(option.kinds for option in options)))


def _choice(results: tuple[Any, ...]) -> Choice:
    values = tuple(result.value if isinstance(result, Enum) else result for result in results)
    return Choice(values=values, results=results, kinds=frozenset(map(kind_of, values)))


def _array(origin: Any, arguments: tuple[Any, ...]) -> Array:
    fixed = origin is tuple and bool(arguments) and not (len(arguments) == 2 and arguments[1] is Ellipsis)
    items = arguments if fixed else (arguments[:1] or (Any,))
    return Array(parts=tuple(map(form_of, items)), fixed=fixed, build=_ARRAYS[origin])


@functools.lru_cache(maxsize=256)
def object_form(cls: type[attrs.AttrsInstance]) -> Object:
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
        name = attribute.alias or attribute.name
        if not attribute.init or attribute.metadata.get("key") is False:
            continue
        if attribute.metadata.get("rest"):
            rest = name
            continue
        if attribute.metadata.get("shorthand"):
            shorthand = name
        annotation = hints.get(attribute.name, Any if attribute.type is None else attribute.type)
        keys[name] = Key(name=name, attribute=attribute, make_form=partial(form_of, annotation))
    kinds = frozenset({"object"} if shorthand is None else {"object", "string"})
    return Object(cls=cls, keys=keys, kinds=kinds, rest=rest, shorthand=shorthand)


def structure(
    cls: type[T],
    value: Any,
    *,
    pointer: str = "",
    base_dir: Path | None = None,
    elsewhere: Collection[str] = (),
    check_object: CheckObject = unchecked,
) -> T:
    """Make an instance of an attrs class from plain JSON.

    Nothing is coerced: no string for a number, no bool for a number, no string for a list; an integer does for a float.
    Bounds in ``Annotated`` hold, unknown keys are refused, validators and ``__attrs_post_init__`` run.

    :param cls: An attrs class, or any annotation that such a class may have.
    :param value: What a JSON parser returns; the settings of a plugin with its secrets resolved.
    :param pointer: The place of the value in the job, for errors.
    :param base_dir: Where relative ``Path`` values start. None: they stay as they are.
    :param elsewhere: Keys of the same object that others read; suggested for a mistyped key.
    :param check_object: Called for every ``ImportPath``; its errors have no pointer yet.
    :raises Errors: With everything that is wrong, in the order of the document.
    """
    reading = Reading(base_dir=base_dir, root=value, elsewhere=elsewhere, check_object=check_object)
    try:
        return cast("T", form_of(cls).structure(value, reading))
    except HostcoreError as error:
        raise Errors(moved(error, pointer)) from error.__cause__


def json_schema(cls: type[attrs.AttrsInstance]) -> dict[str, Any]:
    """Return the JSON Schema of an attrs class, as far as it can express what the form of the class takes.

    Classes inside it are in ``$defs``, under their qualified names, so that schemas can be put into one another.

    :raises HostcoreError: ``settings.class`` if the annotations of a class cannot be resolved.
    """
    definitions: dict[str, Any] = {}
    schema = object_form(cls).definition(definitions)
    return {"$schema": DIALECT, "title": cls.__name__, **schema, **({"$defs": definitions} if definitions else {})}
