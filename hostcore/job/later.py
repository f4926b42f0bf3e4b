"""Keys whose feature belongs to a later version: a value other than the default is refused, never ignored."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from hostcore.job.names import is_builtin
from hostcore.job.pointers import tokens
from hostcore_hookspecs.errors import HostcoreError


@attrs.frozen
class _NotYet:
    """One key of a job."""

    pointer: str
    #: The feature, as the subject of a sentence.
    feature: str
    #: The values that ask for nothing new.
    defaults: tuple[Any, ...] = (None,)
    #: In place of ``defaults``, where the answer needs more of the job: value, job -> asks for nothing new.
    allows: Callable[[Any, Mapping[str, Any]], bool] | None = None


def _is_local(launcher: Any, _job: Mapping[str, Any]) -> bool:
    name = launcher.get("use") if isinstance(launcher, Mapping) else launcher
    return name is None or (isinstance(name, str) and is_builtin(name, "local"))


_TABLE = (
    _NotYet("/policies", "a policy is", (None, [])),
    _NotYet("/launcher", "a launcher other than local is", allows=_is_local),
    _NotYet("/environment", "an isolated environment is"),
    _NotYet("/resources", "asking for resources is"),
)


def not_yet(document: Mapping[str, Any]) -> list[HostcoreError]:
    """Everything that a job asks for and that this version does not do; wrong types may be among it."""
    errors = []
    for entry in _TABLE:
        given, value = _look_up(document, entry.pointer)
        allowed = entry.allows(value, document) if entry.allows else value in entry.defaults
        if given and not allowed:
            errors.append(_refusal(entry.pointer, entry.feature))
    return errors


def _refusal(pointer: str, feature: str) -> HostcoreError:
    message = f"{feature} not there yet in this version of hostcore"
    return HostcoreError(message, code="job.not_yet", pointer=pointer, hint="remove the key")


def _look_up(document: Any, pointer: str) -> tuple[bool, Any]:
    for token in tokens(pointer):
        if not isinstance(document, Mapping) or token not in document:
            return False, None
        document = document[token]
    return True, document
