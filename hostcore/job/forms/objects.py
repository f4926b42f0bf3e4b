"""Forms of attrs classes, and the choice of a form by annotation."""

import functools
import re
import types
import typing
from collections import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType

import attrs

from hostcore.errors import all_errors
from hostcore.job.bounds import Bound, bounds_of
from hostcore.job.forms.construction import construct
from hostcore.job.forms.containers import Array, KeyedValues, Union
from hostcore.job.forms.form import SCALARS, Form, Mismatch, Reading, kind_of
from hostcore.job.forms.import_path import ImportedObject
from hostcore.job.forms.scalars import Anything, Choice, LocalPath, Scalar, SecretValue, Unsupported
from hostcore.job.json_values import to_plain
from hostcore.job.pointers import Problems
from hostcore.job.wording import did_you_mean, found, near
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.setting_types import ImportPath, Secret

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


@attrs.frozen(kw_only=True)
class Key:
    """One key of an object: a field of an attrs class."""

    name: str
    annotation: Any
    attribute: "attrs.Attribute[Any]"

    @property
    def required(self) -> bool:
        """Return whether an object without it is wrong."""
        return self.attribute.default is attrs.NOTHING

    @functools.cached_property
    def form(self) -> Form:
        """The form of its value; made when it is needed, since a class may hold itself."""
        return form_of(self.annotation)

    def structure(self, value: Any, reading: Reading) -> Any:
        """Convert the value of the key, see :meth:`Form.structure`."""
        return self.form.structure(value, reading)

    def missing(self) -> HostcoreError:
        """Return the error for an object without the key."""
        message = f"{found(self.name)} is missing: expected {self.form.words()}"
        return HostcoreError(message, code="key.missing", pointer="")

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of the value with the key's meaning and default."""
        schema = self.form.schema(definitions)
        metadata = self.attribute.metadata
        words = [str(metadata["help"])] if "help" in metadata else []
        if "default" in metadata:
            words.append(f"Default: {metadata['default']}.")
        elif not self.required and (default := self._plain_default()) is not attrs.NOTHING:
            schema["default"] = default
        if words:
            schema["description"] = " ".join([*words, *([schema["description"]] if "description" in schema else [])])
        return schema

    def _plain_default(self) -> Any:
        default: Any = self.attribute.default
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            default = attrs.NOTHING if default.takes_self else default.factory()
        try:
            return attrs.NOTHING if default is None else to_plain(default)
        except TypeError:  # a default that a job could not give
            return attrs.NOTHING


@attrs.frozen(kw_only=True)
class Object(Form):
    """An attrs class.

    :param rest: The argument that takes all other keys; None if other keys are wrong.
    :param shorthand: The key that a plain string stands for.
    """

    cls: type[attrs.AttrsInstance]
    keys: Mapping[str, Key]
    rest: str | None = None
    shorthand: str | None = None

    def _read(self, value: Any, reading: Reading) -> Any:
        if self.shorthand is not None and isinstance(value, str):
            return self._read_shorthand(value, reading)
        if not isinstance(value, Mapping):
            raise Mismatch(self, value)
        problems = Problems()
        arguments: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        meant: set[str] = set()
        for name, item in value.items():
            if name in self.keys:
                arguments[name] = problems.gather(name, self.keys[name].structure, item, reading)
            elif self.rest is not None:
                rest[name] = item
            else:
                known = [*self.keys, *(reading.elsewhere if value is reading.root else ())]
                meant.update(near(str(name), known))
                problems.add(_unknown_key(str(name), known), str(name))
        for name, key in self.keys.items():
            if key.required and name not in value and name not in meant:
                problems.add(key.missing(), name)
        problems.check()
        return construct(self.cls, arguments if self.rest is None else {**arguments, self.rest: rest})

    def _read_shorthand(self, value: str, reading: Reading) -> Any:
        try:
            return self._read({self.shorthand: value}, reading)
        except HostcoreError as error:
            for problem in all_errors(error):  # there is no object to point into
                problem.pointer = ""
            raise

    def _noun(self) -> str:
        return "an object" if self.shorthand is None else "a string or an object"

    def _schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        name = definition_name(self.cls)
        if name not in definitions:
            definitions[name] = {}  # a class may hold itself
            definitions[name] = self.definition(definitions)
        return {"$ref": f"#/$defs/{name}"}

    def definition(self, definitions: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of the class in place, not as a reference."""
        properties = {name: key.schema(definitions) for name, key in self.keys.items()}
        required = [name for name, key in self.keys.items() if key.required]
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        doc = self.cls.__doc__
        if doc and not doc.startswith("Method generated by attrs"):
            schema["description"] = doc.strip().partition("\n\n")[0].replace("\n    ", " ")
        if required:
            schema["required"] = required
        if self.rest is None:
            schema["additionalProperties"] = False
        if self.shorthand is None:
            return schema
        description = {"description": schema.pop("description")} if "description" in schema else {}
        return {"anyOf": [{**properties[self.shorthand]}, schema], **description}


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
        untyped = Any if attribute.type is None else attribute.type
        keys[name] = Key(name=name, annotation=hints.get(attribute.name, untyped), attribute=attribute)
    kinds = frozenset({"object"} if shorthand is None else {"object", "string"})
    return Object(cls=cls, keys=keys, kinds=kinds, rest=rest, shorthand=shorthand)


def definition_name(cls: type) -> str:
    """Return the name of a class in the ``$defs`` of a schema."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", qualified_name(cls))


def qualified_name(cls: Any) -> str:
    """Return the name of a class in messages: ``my_trainer.Trainer.Hyperparams``."""
    return f"{cls.__module__}.{cls.__qualname__}" if isinstance(cls, type) else str(cls)


def _unknown_key(name: str, known: Collection[str]) -> HostcoreError:
    if not known:
        return HostcoreError(f"unknown key {found(name)}: no settings are taken here", code="key.unknown", pointer="")
    hint = did_you_mean(near(name, known)) or f"the keys are {', '.join(sorted(known))}"
    return HostcoreError(f"unknown key {found(name)}", code="key.unknown", pointer="", hint=hint)
