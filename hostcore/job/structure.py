"""Plain JSON values into attrs classes: strictly, and with all errors at once.

cattrs finds the hook for each annotation; the hooks are ours, since those of cattrs coerce (``str(1)``, ``list("a")``).
A hook raises errors whose pointers start at its own value; its caller puts the pointer of that value in front.
Settings that a plugin refuses (:class:`InvalidSettings`) travel the same way.
"""

import json
import math
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, cast

import attrs
from cattrs import Converter

from hostcore.errors import Errors, all_errors
from hostcore.job.bounds import Pattern, holds
from hostcore.job.forms import (
    ObjectForm,
    arms,
    array_of,
    bare,
    choices,
    expected,
    is_enum,
    is_union,
    json_type_of,
    json_types,
    mapping_of,
    object_form,
    qualified_name,
)
from hostcore.job.names import IMPORT_PATH
from hostcore.job.objects import is_import_path
from hostcore.job.paths import absolute, is_uri
from hostcore.job.pointers import Problems, moved
from hostcore.job.wording import did_you_mean, found, near
from hostcore.secrets.reference import SecretText, without_marks
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.setting_types import ImportPath, Secret

__all__ = ["Pattern", "structure"]

T = TypeVar("T")
#: Looks at what a path names; the second argument is the annotation.
CheckObject = Callable[[ImportPath[Any], Any], None]

#: What YAML 1.1 and Python call true and false, in lower case.
_BOOLEAN_WORDS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}

#: Integers and floats that JSON readers and the event log agree on.
_LARGEST_INTEGER = 2**63 - 1
#: What to do with a secret that was written into a job.
_NO_PLACE_FOR_SECRETS: Final = "put it into an environment variable or a file: a job is no place for a secret"


def unchecked(path: ImportPath[Any], form: Any) -> None:
    """Import nothing: what a path names is not looked at."""


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
    :param pointer: Where the value is in the job; errors say so.
    :param base_dir: Where relative ``Path`` values start. None: they stay as they are.
    :param elsewhere: Keys of the same object that others read; suggested for a mistyped key.
    :param check_object: Called for every ``ImportPath``; what it raises has no pointer yet.
    :raises Errors: With everything that is wrong, in the order of the document.
    """
    try:
        return cast("T", _Structurer(base_dir, value, elsewhere, check_object).structure(value, cls))
    except HostcoreError as error:
        raise Errors(moved(error, pointer)) from error.__cause__


class _Mismatch(HostcoreError):
    """The value is not what is expected."""

    code = "value.type"

    def __init__(self, form: Any, value: Any, *, code: str | None = None, hint: str | None = None) -> None:
        shown = found(value)
        if isinstance(value, str) and _takes_secret(form):  # most likely the secret itself: not to be repeated
            shown, hint = "a string", _NO_PLACE_FOR_SECRETS
        super().__init__(f"expected {expected(form)}, found {shown}", code=code, pointer="", hint=hint)


def _takes_secret(form: Any) -> bool:
    form = bare(form)[0]
    return form is Secret or (is_union(form) and any(_takes_secret(arm) for arm in arms(form)))


class _Structurer:
    """The hooks, and what they need to know beside the value and its annotation."""

    def __init__(self, base_dir: Path | None, root: Any, elsewhere: Collection[str], check_object: CheckObject) -> None:
        self._base_dir = base_dir
        self._root = root
        self._elsewhere = elsewhere
        self._check_object = check_object
        # Our hooks gather errors themselves, with pointers.
        self._converter = Converter(detailed_validation=False)
        for applies, hook in (  # the last one that applies is taken
            (lambda _: True, self._unsupported),
            (lambda form: form is Any or form is object, lambda value, _: without_marks(value)),
            (lambda form: isinstance(form, type) and attrs.has(form), self._object),
            (lambda form: mapping_of(form) is not None, self._mapping),
            (lambda form: array_of(form) is not None, self._array),
            (lambda form: choices(form) is not None, self._choice),
            (is_union, self._union),
            (lambda form: form in (bool, None, type(None)), self._scalar),
            (lambda form: form is Secret, self._secret),
            (is_import_path, self._import_path),
        ):
            self._converter.register_structure_hook_func(applies, hook)
        # These cattrs dispatches by class, before it asks any of the above.
        for scalar in (str, bytes, int, float, Path):
            self._converter.register_structure_hook(scalar, self._scalar)

    def structure(self, value: Any, form: Any) -> Any:
        """A value in the form of an annotation.

        :raises HostcoreError: One or several; their pointers start at the value.
        """
        if bare(form)[0] is not form:
            return self._annotated(value, form)
        return self._converter.structure(value, form)

    def _unsupported(self, _value: Any, form: Any) -> NoReturn:
        raise HostcoreError(
            f"{qualified_name(form)} cannot be written in JSON",
            code="settings.class",
            pointer="",
            hint="settings may be numbers, strings, booleans, paths, enumerations, lists, mappings, attrs classes, "
            "Secret and ImportPath",
        )

    def _annotated(self, value: Any, form: Any) -> Any:
        inner, bounds = bare(form)
        try:
            result = self.structure(value, inner)
        except _Mismatch as error:
            if error.pointer:
                raise
            raise _Mismatch(form, value, code=error.code, hint=error.hint) from None  # say the bounds as well
        broken = [bound for bound in bounds if result is not None and not holds(bound, result)]
        if broken:
            patterns = [bound for bound in broken if isinstance(bound, Pattern) and not isinstance(value, SecretText)]
            meant = [pattern.suggestion(value) for pattern in patterns]
            raise _Mismatch(form, value, code="value.range", hint=did_you_mean([guess for guess in meant if guess]))
        return result

    def _scalar(self, value: Any, form: Any) -> Any:
        if is_enum(form):  # class Mode(str, Enum) is dispatched as a str
            return self._choice(value, form)
        if type(value) in (str, SecretText) and form is str:
            return str(value)
        if type(value) is int and form in (int, float) and abs(value) <= _LARGEST_INTEGER:
            return form(value)
        if type(value) is float and form is float and math.isfinite(value):
            return value
        if type(value) is bool and form is bool:
            return value
        if value is None and form in (None, type(None)):
            return None
        if isinstance(value, str | Path) and form is Path and str(value) and not is_uri(str(value)):
            return Path(absolute(str(value), self._base_dir))
        if form in (str, int, float, bool, None, type(None), Path):
            raise _Mismatch(form, value, hint=_rewrite(form, value))
        return self._unsupported(value, form)

    def _secret(self, value: Any, form: Any) -> Secret:
        if isinstance(value, SecretText):
            return Secret(str(value))
        raise _Mismatch(form, value)

    def _import_path(self, value: Any, form: Any) -> ImportPath[Any]:
        if type(value) is not str:  # nor a secret: what code runs is for all to see
            raise _Mismatch(form, value)
        if not IMPORT_PATH.accepts(value):
            meant = IMPORT_PATH.suggestion(value)
            raise _Mismatch(form, value, code="value.range", hint=did_you_mean([meant] if meant else []))
        path: ImportPath[Any] = ImportPath(value)
        self._check_object(path, form)
        return path

    def _choice(self, value: Any, form: Any) -> Any:
        if isinstance(value, SecretText):
            value = str(value)
        allowed = choices(form) or ()
        for choice, result in zip(allowed, form if is_enum(form) else typing.get_args(form), strict=True):
            if type(choice) is type(value) and choice == value:
                return result
        hint = did_you_mean(near(value, (c for c in allowed if isinstance(c, str)))) if isinstance(value, str) else None
        raise _Mismatch(form, value, code="value.choice", hint=hint)

    def _array(self, value: Any, form: Any) -> Any:
        array = array_of(form)
        if array is None or not isinstance(value, list | tuple) or (array.fixed and len(value) != len(array.items)):
            raise _Mismatch(form, value, hint=_rewrite(form, value))
        problems = Problems()
        forms = array.items if array.fixed else array.items * len(value)
        items = [
            problems.gather(str(index), self.structure, item, item_form)
            for index, (item, item_form) in enumerate(zip(value, forms, strict=True))
        ]
        problems.check()
        try:
            result = array.build(items)
        except TypeError:  # lists and objects are not hashable
            raise HostcoreError(f"{qualified_name(form)} takes no lists or objects", code="value.type") from None
        if len(result) != len(items):
            raise HostcoreError("expected a list without duplicates", code="value.range", pointer="")
        return result

    def _mapping(self, value: Any, form: Any) -> Any:
        key_form, value_form = mapping_of(form) or (str, Any)
        if not isinstance(value, Mapping):
            raise _Mismatch(form, value)
        problems = Problems()
        result = {
            problems.gather(key, self.structure, key, key_form): problems.gather(key, self.structure, item, value_form)
            for key, item in value.items()
        }
        problems.check()
        return result

    def _union(self, value: Any, form: Any) -> Any:
        """The arm whose type is exactly the value's, or else the first that takes it."""
        problems: list[HostcoreError] = []
        own = Secret if isinstance(value, SecretText) else type(value)
        forms = sorted(arms(form), key=lambda arm: bare(arm)[0] is not own)
        for arm in forms:
            try:
                return self.structure(value, arm)
            except HostcoreError as error:
                problems.append(error)
        kind = json_type_of(value)
        inside = [
            error
            for arm, error in zip(forms, problems, strict=True)
            if (kind in ("array", "object") and kind in json_types(arm))
            or (is_import_path(bare(arm)[0]) and not isinstance(error, _Mismatch))  # of the right form
        ]
        if inside:  # only one arm can be meant, or the one with the fewest errors probably is
            raise min(inside, key=lambda error: len(all_errors(error)))
        out_of_range = any(error.code == "value.range" for error in problems)
        hint = next((error.hint for error in problems if error.hint and error.hint.startswith("did")), None)
        raise _Mismatch(form, value, code="value.range" if out_of_range else None, hint=hint or _rewrite(form, value))

    def _object(self, value: Any, cls: type[attrs.AttrsInstance]) -> Any:
        form = object_form(cls)
        if form.shorthand is not None and isinstance(value, str):
            return self._shorthand(value, cls, form)
        if not isinstance(value, Mapping):
            raise _Mismatch(cls, value)
        problems = Problems()
        arguments: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        meant: set[str] = set()
        for name, item in value.items():
            if name in form.keys:
                arguments[name] = problems.gather(name, self.structure, item, form.keys[name].form)
            elif form.rest is not None:
                rest[name] = item
            else:
                known = [*form.keys, *(self._elsewhere if value is self._root else ())]
                meant.update(near(str(name), known))
                problems.add(_unknown_key(str(name), known), str(name))
        for name, key in form.keys.items():
            if key.required and name not in value and name not in meant:
                problems.add(_missing_key(name, key.form), name)
        problems.check()
        if form.rest is not None:
            arguments[form.rest] = rest
        return construct(cls, arguments)

    def _shorthand(self, value: str, cls: type[Any], form: ObjectForm) -> Any:
        try:
            return self._object({form.shorthand: value}, cls)
        except HostcoreError as error:
            for problem in all_errors(error):  # there is no object to point into
                problem.pointer = ""
            raise


def _unknown_key(name: str, known: Collection[str]) -> HostcoreError:
    if not known:
        return HostcoreError(f"unknown key {found(name)}: no settings are taken here", code="key.unknown", pointer="")
    hint = did_you_mean(near(name, known)) or f"the keys are {', '.join(sorted(known))}"
    return HostcoreError(f"unknown key {found(name)}", code="key.unknown", pointer="", hint=hint)


def _missing_key(name: str, form: Any) -> HostcoreError:
    return HostcoreError(f"{found(name)} is missing: expected {expected(form)}", code="key.missing", pointer="")


def _rewrite(form: Any, value: Any) -> str | None:
    """How to write a value of a neighbouring type as what is expected; None if that cannot be guessed."""
    if isinstance(value, SecretText):
        return None
    takes = json_types(form)
    if isinstance(value, float) and value.is_integer() and "integer" in takes and abs(value) <= _LARGEST_INTEGER:
        return f"write {int(value)}"
    if isinstance(value, str):
        if value and is_uri(value) and Path in _plain_arms(form):
            return "URIs are not taken here, only paths of this machine"
        try:
            read = json_type_of(json.loads(value))
        except (ValueError, RecursionError):
            read = "string"
        if read in takes - {"string"} or (read == "integer" and "number" in takes):
            return "write it without the quotes"
        if "boolean" in takes and (meant := _BOOLEAN_WORDS.get(value.lower())):
            return f"write {meant}" if meant == value.lower() else f"write {meant}; {value} is text, also in YAML 1.2"
        if any((array := array_of(arm)) and "string" in json_types(array.items[0]) for arm in _plain_arms(form)):
            return f"write [{found(value)}]"
    if isinstance(value, bool | int | float) and str in _plain_arms(form):
        return f'write "{_as_text(form, found(value))}", with quotes'
    return None


def _as_text(form: Any, text: str) -> str:
    """A number as text that the patterns of an annotation accept, if one of them guesses which is meant."""
    bounds = [bound for arm in (arms(form) if is_union(form) else [form]) for bound in bare(arm)[1]]
    guesses = [bound.suggestion(text) for bound in bounds if isinstance(bound, Pattern) and not bound.accepts(text)]
    return next(filter(None, guesses), text)


def _plain_arms(form: Any) -> list[Any]:
    form, _ = bare(form)
    return [bare(arm)[0] for arm in arms(form)] if is_union(form) else [form]


def construct(cls: type[attrs.AttrsInstance], arguments: Mapping[str, Any]) -> Any:
    """Call an attrs class.

    A ``ValueError`` or ``TypeError`` of a converter, a validator or ``__attrs_post_init__`` is how a class says that it
    does not like its arguments; any other exception is a defect of the class and passes through.

    :raises HostcoreError: One or several, their pointers relative to the object.
    """
    try:
        return cls(**arguments)
    except HostcoreError:
        raise
    except (ValueError, TypeError) as error:
        _blame_fields(cls, arguments)
        raise _invalid(error) from error


def _blame_fields(cls: type[attrs.AttrsInstance], arguments: Mapping[str, Any]) -> None:
    """Ask every converter and validator again, one by one: attrs stops at the first, and does not say whose it was."""
    problems = Problems()
    instance = cls.__new__(cls)
    for attribute in attrs.fields(cls):
        argument = attribute.alias or attribute.name
        if argument in arguments:
            value = problems.gather(argument, _convert, attribute, arguments[argument])
        elif attribute.default is not attrs.NOTHING and not isinstance(attribute.default, attrs.Factory):  # type: ignore[arg-type]
            value = attribute.default
        else:
            continue
        object.__setattr__(instance, attribute.name, value)
    for attribute in attrs.fields(cls):
        if attribute.validator is not None and hasattr(instance, attribute.name):
            problems.gather(attribute.alias or attribute.name, _validate, instance, attribute)
    problems.check()


def _convert(attribute: "attrs.Attribute[Any]", value: Any) -> Any:
    if attribute.converter is None or isinstance(attribute.converter, attrs.Converter):
        return value  # an attrs.Converter may want the instance or the field; the constructor has its own error then
    try:
        return attribute.converter(value)
    except (ValueError, TypeError) as error:
        raise _invalid(error) from error


def _validate(instance: attrs.AttrsInstance, attribute: "attrs.Attribute[Any]") -> None:
    if attribute.validator is None:
        return
    try:
        attribute.validator(instance, attribute, getattr(instance, attribute.name))
    except (ValueError, TypeError) as error:
        raise _invalid(error) from error


def _invalid(error: Exception) -> HostcoreError:
    # attrs' own validators raise with the attribute and the value behind the message
    message = str(error.args[0]) if error.args else type(error).__name__
    return HostcoreError(message, code="value.invalid", pointer="")
