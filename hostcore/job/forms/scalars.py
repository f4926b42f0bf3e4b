"""Forms of values without parts: scalars, paths, choices and secrets."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs

from hostcore.job.bounds import PATH_FORMAT
from hostcore.job.forms.form import LARGEST_INTEGER, SCALARS, Form, Mismatch, Reading
from hostcore.job.paths import absolute, is_uri
from hostcore.job.wording import did_you_mean, near, one_of
from hostcore.secrets.reference import SecretText, without_marks
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.setting_types import Secret

#: The JSON Schema of what stands for a secret.
REFERENCE: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"$secret": {"type": "string", "pattern": "^(env|file):."}},
    "required": ["$secret"],
    "additionalProperties": False,
}


@attrs.frozen(kw_only=True)
class Scalar(Form):
    """A string, number, boolean or null. Nothing is coerced, except an integer for a float."""

    def _read(self, value: Any, _reading: Reading) -> Any:
        given = str if isinstance(value, SecretText) else type(value)
        fits = given is self.type or (given is int and self.type is float)
        if not fits or (given is int and abs(value) > LARGEST_INTEGER) or (given is float and not math.isfinite(value)):
            raise Mismatch(self, value)
        return None if value is None else self.type(value)

    def _noun(self) -> str:
        return SCALARS[self.type][1]

    def _schema(self, _definitions: dict[str, Any]) -> dict[str, Any]:
        return {"type": SCALARS[self.type][0]}


@attrs.frozen(kw_only=True)
class LocalPath(Form):
    """A path of this machine; relative ones start at the folder of the job."""

    kinds: frozenset[str] = frozenset({"string"})
    type: Any = Path

    def _read(self, value: Any, reading: Reading) -> Path:
        if not isinstance(value, str | Path) or not str(value) or is_uri(str(value)):
            raise Mismatch(self, value)
        return Path(absolute(str(value), reading.base_dir))

    def _noun(self) -> str:
        return "a path"

    def _schema(self, _definitions: dict[str, Any]) -> dict[str, Any]:
        return {"type": "string", "format": PATH_FORMAT, "minLength": 1}


@attrs.frozen(kw_only=True)
class Choice(Form):
    """One of the values of a ``Literal`` or an ``Enum``, in JSON and in Python."""

    values: tuple[Any, ...]
    results: tuple[Any, ...]

    def _read(self, value: Any, _reading: Reading) -> Any:
        plain = str(value) if isinstance(value, SecretText) else value
        for allowed, result in zip(self.values, self.results, strict=True):
            if type(allowed) is type(plain) and allowed == plain:
                return result
        words = [allowed for allowed in self.values if isinstance(allowed, str)]
        hint = did_you_mean(near(plain, words)) if isinstance(plain, str) else None
        raise Mismatch(self, plain, code="value.choice", hint=hint)

    def _noun(self) -> str:
        return one_of(self.values)

    def _schema(self, _definitions: dict[str, Any]) -> dict[str, Any]:
        return {"enum": list(self.values)}


@attrs.frozen(kw_only=True)
class SecretValue(Form):
    """A reference to a secret, which is resolved before: the value itself is refused."""

    kinds: frozenset[str] = frozenset({"object"})
    type: Any = Secret

    def _read(self, value: Any, _reading: Reading) -> Secret:
        if not isinstance(value, SecretText):
            raise Mismatch(self, value)
        return Secret(str(value))

    def _noun(self) -> str:
        return 'a reference to a secret, such as {"$secret": "env:NAME"}'

    def _schema(self, _definitions: dict[str, Any]) -> dict[str, Any]:
        return {**REFERENCE}


@attrs.frozen(kw_only=True)
class Anything(Form):
    """``Any``: every JSON value, as it is."""

    kinds: frozenset[str] = frozenset({"array", "object"}.union(kind for kind, _ in SCALARS.values()))

    def _read(self, value: Any, _reading: Reading) -> Any:
        return without_marks(value)

    def _noun(self) -> str:
        return "a value"

    def _schema(self, _definitions: dict[str, Any]) -> dict[str, Any]:
        return {}


@attrs.frozen(kw_only=True)
class Unsupported(Form):
    """A type that JSON cannot give: a defect of the class that has it."""

    name: str
    kinds: frozenset[str] = frozenset()

    def _read(self, _value: Any, _reading: Reading) -> NoReturn:
        raise HostcoreError(
            f"{self.name} cannot be written in JSON",
            code="settings.class",
            pointer="",
            hint="settings may be numbers, strings, booleans, paths, enumerations, lists, mappings, attrs classes, "
            "Secret and ImportPath",
        )

    def _noun(self) -> str:
        return "a value"

    def _schema(self, _definitions: dict[str, Any]) -> dict[str, Any]:
        return {"not": {}}
