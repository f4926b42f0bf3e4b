"""The settings class of a plugin under check, and its fields."""

from collections.abc import Mapping
from typing import Any

import attrs

from hostcore.plugins.settings import settings_class
from hostcore_conformance.subject import Subject


def settings_class_of(subject: Subject) -> Any:
    """The attrs class of its settings; None if it declares none.

    :raises PluginError: There is something of that name, but no attrs class.
    """
    return settings_class(subject.owner, subject.ref)


def keys_of(declared: Any) -> Mapping[str, Any]:
    """The keys that a job may give, each with its annotation and attrs attribute; empty without a settings class.

    :raises HostcoreError: The annotations cannot be resolved.
    """
    from hostcore.job.forms import object_form

    return object_form(declared).keys if declared is not None else {}


def required_keys(declared: Any) -> tuple[str, ...]:
    """The keys that a job has to give."""
    return tuple(name for name, key in keys_of(declared).items() if key.required)


def takes_any_key(declared: Any) -> bool:
    """Return whether a class collects unknown keys."""
    from hostcore.job.forms import object_form

    return object_form(declared).rest is not None


def content(settings: Any) -> Any:
    """A copy of settings that can be compared later, whatever the class does about equality."""
    if attrs.has(type(settings)):
        names = [field.name for field in attrs.fields(type(settings))]
        return {name: content(getattr(settings, name, None)) for name in names}
    if isinstance(settings, Mapping):
        return {key: content(value) for key, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [content(value) for value in settings]
    return set(settings) if isinstance(settings, set) else settings
