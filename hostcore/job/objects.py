"""What a setting of type :class:`ImportPath` asks of the object that it names: read from the annotation."""

import inspect
import types
import typing
from collections import abc
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.setting_types import ImportPath


@attrs.frozen(kw_only=True)
class Asked:
    """What an object must be."""

    #: In words: ``a class``.
    noun: str
    accepts: Callable[[object], bool]


def is_import_path(form: Any) -> bool:
    """Whether a bare annotation is ``ImportPath``, with or without what it asks for."""
    return (typing.get_origin(form) or form) is ImportPath


def asked_of(form: Any) -> Asked:
    """What a bare ``ImportPath[…]`` asks for.

    :raises HostcoreError: ``settings.class``: no object can be checked against it.
    """
    (wanted,) = typing.get_args(form) or (Any,)
    origin = typing.get_origin(wanted) or wanted
    if _is_anything(origin):
        return Asked(noun="an object", accepts=lambda _: True)
    if origin is abc.Callable:
        return Asked(noun="something that can be called", accepts=callable)
    if origin is type:
        (base,) = typing.get_args(wanted) or (Any,)
        base = typing.get_origin(base) or base
        if _is_anything(base):
            return Asked(noun="a class", accepts=inspect.isclass)
        if _can_be_asked(base) and _has_subclasses(base):
            return Asked(noun=f"a subclass of {_name(base)}", accepts=lambda found: _is_subclass(found, base))
    elif _can_be_asked(origin):
        return Asked(noun=f"an instance of {_name(origin)}", accepts=lambda found: isinstance(found, origin))
    raise HostcoreError(
        f"{form} asks for what cannot be checked",
        code="settings.class",
        pointer="",
        hint="write ImportPath, ImportPath[type], ImportPath[type[C]], ImportPath[Callable[..., object]] or"
        " ImportPath[C], with a class C",
    )


def _is_anything(form: Any) -> bool:
    return form is Any or form is object or isinstance(form, TypeVar)


def _can_be_asked(form: Any) -> bool:
    """Whether ``isinstance`` takes it: a class, and no protocol that exists for type checkers alone."""
    if not inspect.isclass(form) or form is types.UnionType:
        return False
    return not getattr(form, "_is_protocol", False) or bool(getattr(form, "_is_runtime_protocol", False))


def _has_subclasses(base: type) -> bool:
    """Whether ``issubclass`` takes it, too: a class, and no protocol with other members than methods."""
    try:
        issubclass(object, base)
    except TypeError:
        return False
    return True


def _name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _is_subclass(found: object, base: type) -> bool:
    return inspect.isclass(found) and issubclass(found, base)
