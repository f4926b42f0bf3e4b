"""Forms of lists and mappings, and of alternatives."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import attrs

from hostcore.errors import all_errors
from hostcore.job.forms.form import Form, Mismatch, Reading, kind_of, rewritten
from hostcore.job.pointers import Problems
from hostcore.job.wording import alternatives
from hostcore.secrets.reference import SecretText
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.setting_types import Secret

_PLURALS = {"string": "strings", "integer": "integers", "number": "numbers", "array": "lists", "object": "objects"}


@attrs.frozen(kw_only=True)
class Array(Form):
    """A list. Its ``parts`` are the form of every element; for a fixed one, of each.

    :param build: Makes the Python container.
    """

    fixed: bool = False
    build: Callable[[Iterable[Any]], Collection[Any]]
    kinds: frozenset[str] = frozenset({"array"})

    def _read(self, value: Any, reading: Reading) -> Collection[Any]:
        if not isinstance(value, list | tuple) or (self.fixed and len(value) != len(self.parts)):
            raise Mismatch(self, value)
        problems = Problems()
        forms = self.parts if self.fixed else self.parts * len(value)
        items = [
            problems.gather(str(index), form.structure, item, reading)
            for index, (form, item) in enumerate(zip(forms, value, strict=True))
        ]
        problems.check()
        try:
            result = self.build(items)
        except TypeError:  # of a set: lists and objects are not hashable
            raise HostcoreError("a list without duplicates takes no lists or objects", code="value.type") from None
        if len(result) != len(items):
            raise HostcoreError("expected a list without duplicates", code="value.range", pointer="")
        return result

    def _noun(self) -> str:
        if self.fixed:
            return f"a list of {len(self.parts)} element{'' if len(self.parts) == 1 else 's'}"
        kinds = self.parts[0].kinds
        plural = _PLURALS.get(next(iter(kinds))) if len(kinds) == 1 else None
        return f"a list of {plural}" if plural else "a list"

    def _schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        items = [part.schema(definitions) for part in self.parts]
        if self.fixed:
            count = len(items)
            return {"type": "array", "prefixItems": items, "items": False, "minItems": count, "maxItems": count}
        unique = {"uniqueItems": True} if self.build in (set, frozenset) else {}
        return {"type": "array", "items": items[0], **unique}


@attrs.frozen(kw_only=True)
class KeyedValues(Form):
    """A mapping. Its ``parts`` are the form of keys and the form of values."""

    kinds: frozenset[str] = frozenset({"object"})

    def _read(self, value: Any, reading: Reading) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise Mismatch(self, value)
        keys, values = self.parts
        problems = Problems()
        result = {
            problems.gather(key, keys.structure, key, reading): problems.gather(key, values.structure, item, reading)
            for key, item in value.items()
        }
        problems.check()
        return result

    def _noun(self) -> str:
        return "an object"

    def _schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        names, values = [part.schema(definitions) for part in self.parts]
        restriction = {} if names == {"type": "string"} else {"propertyNames": names}
        return {"type": "object", "additionalProperties": values, **restriction}


@attrs.frozen(kw_only=True)
class Union(Form):
    """Alternatives: the one whose type is exactly the value's, or else the first that takes it."""

    def _read(self, value: Any, reading: Reading) -> Any:
        own = Secret if isinstance(value, SecretText) else type(value)
        problems: list[tuple[Form, HostcoreError]] = []
        for option in sorted(self.options, key=lambda option: option.type is not own):
            try:
                return option.structure(value, reading)
            except HostcoreError as error:
                problems.append((option, error))
        kind = kind_of(value)
        inside = [
            error
            for option, error in problems
            if kind in option.kinds and (kind in ("array", "object") or not isinstance(error, Mismatch))
        ]
        if inside:  # only one alternative can be meant, or the one with the fewest errors probably is
            raise min(inside, key=lambda error: len(all_errors(error)))
        errors = [error for _, error in problems]
        hint = next((error.hint for error in errors if error.hint and error.hint.startswith("did")), None)
        out_of_range = any(error.code == "value.range" for error in errors)
        code = "value.range" if out_of_range else None
        raise Mismatch(self, value, code=code, hint=hint or rewritten(self, value))

    def _noun(self) -> str:
        taken = [option for option in self.options if option.kinds != {"null"}]  # null goes without saying
        return alternatives([option.words() for option in taken])

    def _schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"anyOf": [option.schema(definitions) for option in self.options]}
