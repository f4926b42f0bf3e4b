"""The form of an attrs class, and of its keys; their declaration in a class."""

import functools
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, overload

import attrs

from hostcore.errors import all_errors
from hostcore.job.forms.form import Form, Mismatch, Reading
from hostcore.job.json_values import to_plain
from hostcore.job.pointers import Problems
from hostcore.job.wording import did_you_mean, found, near
from hostcore_hookspecs.errors import HostcoreError

T = TypeVar("T")


@overload
def key(meaning: str, *, default: T, shown: str | None = None) -> T: ...


@overload
def key(meaning: str, *, factory: Callable[[], T], shown: str | None = None) -> T: ...


def key(meaning: str, *, shown: str | None = None, **default: Any) -> Any:
    """Declare a key that may be left out.

    :param meaning: A sentence.
    :param default: See :func:`attrs.field`; or ``factory``.
    :param shown: The default in words, if its value is not meaningful.
    """
    return attrs.field(metadata={"help": meaning} if shown is None else {"help": meaning, "default": shown}, **default)


@attrs.frozen(kw_only=True)
class Key:
    """One key of an object: a field of an attrs class."""

    name: str
    attribute: "attrs.Attribute[Any]"
    #: Makes :attr:`form`.
    make_form: Callable[[], Form]

    @property
    def required(self) -> bool:
        """Return whether an object without it is wrong."""
        return self.attribute.default is attrs.NOTHING

    @functools.cached_property
    def form(self) -> Form:
        """The form of its value; made when it is needed, since a class may hold itself."""
        return self.make_form()

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
        return _construct(self.cls, arguments if self.rest is None else {**arguments, self.rest: rest})

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


def _construct(cls: type[attrs.AttrsInstance], arguments: Mapping[str, Any]) -> Any:
    """Call an attrs class, with every refusal at the field that it is about.

    A ``ValueError`` or ``TypeError`` of a converter, a validator or ``__attrs_post_init__`` is how a class refuses its
    arguments; any other exception is a defect of the class and passes through.

    :raises HostcoreError: One or several, their pointers relative to the object.
    """
    try:
        return cls(**arguments)
    except HostcoreError:
        raise
    except (ValueError, TypeError) as error:
        _check_fields(cls, arguments)
        raise _refusal(error) from error


def _refusal(error: Exception) -> HostcoreError:
    # attrs' own validators raise with the attribute and the value behind the message
    message = str(error.args[0]) if error.args else type(error).__name__
    return HostcoreError(message, code="value.invalid", pointer="")


def _of_field(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except (ValueError, TypeError) as error:
        raise _refusal(error) from error


def _check_fields(cls: type[attrs.AttrsInstance], arguments: Mapping[str, Any]) -> None:
    """Call converters and validators one by one: attrs stops at the first that refuses, and does not name its field."""
    problems = Problems()
    instance = cls.__new__(cls)
    for field in attrs.fields(cls):
        name = field.alias or field.name
        if name in arguments:
            value = arguments[name]
            # an attrs.Converter may want the instance or the field; the constructor has its own error then
            if field.converter is not None and not isinstance(field.converter, attrs.Converter):
                value = problems.gather(name, _of_field, field.converter, value)
        elif field.default is not attrs.NOTHING and not isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]
            value = field.default
        else:
            continue
        object.__setattr__(instance, field.name, value)
    for field in attrs.fields(cls):
        if field.validator is not None and hasattr(instance, field.name):
            problems.gather(
                field.alias or field.name, _of_field, field.validator, instance, field, getattr(instance, field.name)
            )
    problems.check()
