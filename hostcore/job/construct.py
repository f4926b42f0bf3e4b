"""Making an attrs instance from structured arguments, with the errors of its validators at their fields."""

from collections.abc import Mapping
from typing import Any

import attrs

from hostcore.job.pointers import Problems
from hostcore_hookspecs.errors import HostcoreError


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
