"""The call of an attrs class, with every refusal at the field that it is about.

A ``ValueError`` or ``TypeError`` of a converter, a validator or ``__attrs_post_init__`` is how a class refuses its
arguments; any other exception is a defect of the class and passes through.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from hostcore.job.pointers import Problems
from hostcore_hookspecs.errors import HostcoreError


def construct(cls: type[attrs.AttrsInstance], arguments: Mapping[str, Any]) -> Any:
    """Call an attrs class.

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
