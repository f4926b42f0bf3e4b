"""The form of a setting that names an object of the user's code: ``module: ImportPath[type[Model]]``."""

import inspect
import types
import typing
from collections import abc
from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs

from hostcore.job.forms.form import Form, Mismatch, Reading
from hostcore.job.names import IMPORT_PATH
from hostcore.job.wording import did_you_mean
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.setting_types import ImportPath

#: The ``format`` in JSON Schema. No reference to a secret may stand for it.
FORMAT: Final = "python-import-path"


@attrs.frozen(kw_only=True)
class ImportedObject(Form):
    """An import path, and the requirement on the object that it names.

    :param annotation: ``ImportPath``, with or without the requirement in brackets.
    """

    annotation: Any
    kinds: frozenset[str] = frozenset({"string"})

    @property
    def required(self) -> tuple[str, Callable[[object], bool]]:
        """The requirement in words, such as ``a class``, and as a function of an object.

        :raises HostcoreError: ``settings.class``: no object can be checked against it.
        """
        (wanted,) = typing.get_args(self.annotation) or (Any,)
        cls = typing.get_origin(wanted) or wanted
        if _is_anything(cls):
            return "an object", lambda _: True
        if cls is abc.Callable:
            return "something that can be called", callable
        if cls is type:
            (wanted,) = typing.get_args(wanted) or (Any,)
            base = typing.get_origin(wanted) or wanted
            if _is_anything(base):
                return "a class", inspect.isclass
            if _takes(issubclass, base):
                return f"a subclass of {_name(base)}", lambda found: inspect.isclass(found) and issubclass(found, base)
        elif _takes(isinstance, cls):
            return f"an instance of {_name(cls)}", lambda found: isinstance(found, cls)
        raise HostcoreError(
            f"{self.annotation} asks for what cannot be checked",
            code="settings.class",
            pointer="",
            hint="write ImportPath, ImportPath[type], ImportPath[type[C]], ImportPath[Callable[..., object]] or"
            " ImportPath[C], with a class C",
        )

    def _read(self, value: Any, reading: Reading) -> ImportPath[Any]:
        if type(value) is not str:  # nor a secret: what code runs is for all to see
            raise Mismatch(self, value)
        if not IMPORT_PATH.accepts(value):
            meant = IMPORT_PATH.suggestion(value)
            raise Mismatch(self, value, code="value.range", hint=did_you_mean([meant] if meant else []))
        path: ImportPath[Any] = ImportPath(value)
        reading.check_object(path, self)
        return path

    def _noun(self) -> str:
        return f"{IMPORT_PATH.what} of {self.required[0]}"

    def _schema(self, _definitions: dict[str, Any]) -> dict[str, Any]:
        description = f"The import path of {self.required[0]}: module:symbol."
        return {"type": "string", "format": FORMAT, "description": description, "pattern": f"^(?:{IMPORT_PATH.regex})$"}


def _is_anything(wanted: Any) -> bool:
    return wanted is Any or wanted is object or isinstance(wanted, TypeVar)


def _takes(check: Callable[[Any, Any], bool], cls: Any) -> bool:
    """Return whether ``isinstance`` or ``issubclass`` takes a class: not every protocol can be checked."""
    try:
        check(object, cls)
    except TypeError:
        return False
    return inspect.isclass(cls) and cls is not types.UnionType


def _name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
