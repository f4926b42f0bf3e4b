"""The base of all forms, and the error for a value that does not fit."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore.job.bounds import Bound, Pattern, holds, schema_keywords, with_bounds
from hostcore.job.paths import is_uri
from hostcore.job.wording import did_you_mean, found
from hostcore.secrets.reference import SecretText
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.setting_types import ImportPath, Secret

if TYPE_CHECKING:
    from hostcore.job.forms.import_path import ImportedObject

#: Checks the object behind an import path; its errors have no pointer yet.
CheckObject = Callable[[ImportPath[Any], "ImportedObject"], None]

#: Integers and floats that JSON readers and the event log agree on.
LARGEST_INTEGER: Final = 2**63 - 1
#: Scalars of JSON: their names in JSON Schema, and in words.
SCALARS: Final[Mapping[Any, tuple[str, str]]] = {
    str: ("string", "a string"),
    int: ("integer", "an integer"),
    float: ("number", "a number"),
    bool: ("boolean", "true or false"),
    type(None): ("null", "null"),
}
#: What YAML 1.1 and Python call true and false, in lower case.
_BOOLEAN_WORDS: Final = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}
#: What to do with a secret that was written into a job.
_NO_PLACE_FOR_SECRETS: Final = "put it into an environment variable or a file: a job is no place for a secret"


def unchecked(path: ImportPath[Any], form: "ImportedObject") -> None:
    """Accept an import path without importing it."""


@attrs.frozen(kw_only=True)
class Reading:
    """Context of all values of one call of :func:`~hostcore.job.forms.structure`."""

    base_dir: Path | None = None
    #: The outermost object, and keys of it that others read.
    root: Any = None
    elsewhere: Collection[str] = ()
    check_object: CheckObject = unchecked


@attrs.frozen(kw_only=True)
class Form(ABC):
    """Accepted values of an annotation.

    A class of forms implements ``_read``, ``_noun`` and ``_schema`` for the annotation without bounds; ``structure``,
    ``words`` and ``schema`` add the bounds.
    """

    #: JSON types that fit, by their names in JSON Schema; empty if none does.
    kinds: frozenset[str]
    #: The Python type whose values fit as they are; None if there is no such type.
    type: Any = None
    #: The alternatives of a union, and the forms of elements.
    options: tuple["Form", ...] = ()
    parts: tuple["Form", ...] = ()
    bounds: tuple[Bound, ...] = ()

    @abstractmethod
    def _read(self, value: Any, reading: Reading) -> Any: ...

    @abstractmethod
    def _noun(self) -> str: ...

    @abstractmethod
    def _schema(self, definitions: dict[str, Any]) -> dict[str, Any]: ...

    def structure(self, value: Any, reading: Reading) -> Any:
        """Convert a JSON value, strictly.

        :raises HostcoreError: One or several; their pointers start at the value.
        """
        result = self._read(value, reading)
        broken = [bound for bound in self.bounds if result is not None and not holds(bound, result)]
        if broken:
            patterns = [bound for bound in broken if isinstance(bound, Pattern) and not isinstance(value, SecretText)]
            guesses = [guess for pattern in patterns if (guess := pattern.suggestion(value))]
            raise Mismatch(self, value, code="value.range", hint=did_you_mean(guesses))
        return result

    def words(self) -> str:
        """Return the expectation in words: ``an integer of at least 1 or "epoch"``."""
        return with_bounds(self._noun(), self.bounds)

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON Schema.

        :param definitions: Receives the schemas of the classes inside.
        """
        return {**self._schema(definitions), **schema_keywords(self.kinds, self.bounds)}

    @property
    def arms(self) -> tuple["Form", ...]:
        """The alternatives of a union; of any other form, the form itself."""
        return self.options or (self,)

    @property
    def hides(self) -> bool:
        """Return whether a value may be a secret, which no message may show."""
        return self.type is Secret or any(option.hides for option in self.options)

    def inside(self) -> Iterator["Form"]:
        """Yield this form, its alternatives and its elements, at any depth; not the keys of an object."""
        yield self
        for form in (*self.options, *self.parts):
            yield from form.inside()


class Mismatch(HostcoreError):
    """The value is not what is expected."""

    code = "value.type"

    def __init__(self, form: Form, value: Any, *, code: str | None = None, hint: str | None = None) -> None:
        shown = found(value)
        if isinstance(value, str) and form.hides:  # most likely the secret itself: not to be repeated
            shown, hint = "a string", _NO_PLACE_FOR_SECRETS
        elif hint is None and code is None:
            hint = rewritten(form, value)
        super().__init__(f"expected {form.words()}, found {shown}", code=code, pointer="", hint=hint)


def kind_of(value: Any) -> str:
    """Return the JSON type of a plain value; empty for anything else."""
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, list | tuple):
        return "array"
    kind, _ = SCALARS.get(str if isinstance(value, SecretText) else type(value), ("", ""))
    return kind


def rewritten(form: Form, value: Any) -> str | None:
    """A value of a neighbouring type, written as what is expected; None if there is no guess."""
    if isinstance(value, float) and value.is_integer() and "integer" in form.kinds and abs(value) <= LARGEST_INTEGER:
        return f"write {int(value)}"
    if isinstance(value, str) and not isinstance(value, SecretText):
        return _rewritten_text(form, value)
    if isinstance(value, bool | int | float) and str in [arm.type for arm in form.arms]:
        return f'write "{_as_text(form, found(value))}", with quotes'
    return None


def _rewritten_text(form: Form, value: str) -> str | None:
    takes = form.kinds
    if is_uri(value) and Path in [arm.type for arm in form.arms]:
        return "URIs are not taken here, only paths of this machine"
    try:
        read = kind_of(json.loads(value))
    except (ValueError, RecursionError):
        read = "string"
    if read in takes - {"string"} or (read == "integer" and "number" in takes):
        return "write it without the quotes"
    if "boolean" in takes and (meant := _BOOLEAN_WORDS.get(value.lower())):
        return f"write {meant}" if meant == value.lower() else f"write {meant}; {value} is text, also in YAML 1.2"
    if any("array" in arm.kinds and arm.parts and "string" in arm.parts[0].kinds for arm in form.arms):
        return f"write [{found(value)}]"
    return None


def _as_text(form: Form, text: str) -> str:
    """A number as text that the patterns of a form accept, if one of them guesses which is meant."""
    patterns = [bound for arm in form.arms for bound in arm.bounds if isinstance(bound, Pattern)]
    guesses = [pattern.suggestion(text) for pattern in patterns if not pattern.accepts(text)]
    return next(filter(None, guesses), text)
