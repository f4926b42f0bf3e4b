"""Messages between ``hostcore check`` and the process that makes the checks: JSON, a line each."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore_conformance.check import Level
from hostcore_conformance.result import CheckResult
from hostcore_hookspecs.plan import PluginRef


@attrs.frozen(kw_only=True)
class CheckRequest:
    """Plugin to check, and options."""

    #: ``name``, ``distribution/name`` or, with a kind, ``module:symbol``.
    name: str
    kind: str | None = None
    #: None: those of the nearest ``pyproject.toml``.
    settings: Mapping[str, Any] | None = None
    #: A job file; absolute.
    job: str | None = None
    #: Ids, families or patterns; empty: all.
    only: Sequence[str] = ()
    #: Where a ``pyproject.toml`` is looked for; absolute.
    start: str
    #: How long one check may take.
    timeout_seconds: float
    #: Where the tracebacks of a check that hangs, or kills the process, go; absolute.
    trace: str = ""
    #: What came of the checks that an earlier process has made.
    known: Sequence[CheckResult] = ()
    #: What ended that process.
    fatal: CheckResult | None = None

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(attrs.asdict(self)).encode()

    @classmethod
    def decode(cls, text: bytes) -> "CheckRequest":
        """The reverse of :meth:`encode`."""
        fields = json.loads(text)
        known = [CheckResult.from_dict(one) for one in fields.pop("known")]
        fatal = fields.pop("fatal")
        return cls(**fields, known=known, fatal=fatal and CheckResult.from_dict(fatal))


@attrs.frozen(kw_only=True)
class Opened:
    """The plugin and its example were found."""

    ref: PluginRef
    #: The ids of what will be asked, in order; also what others require.
    ids: Sequence[str]
    #: Whether all checks for its kind are to be reported.
    complete: bool
    #: The settings and the job of the example: for the references to secrets in them.
    example: Sequence[Any] = ()


@attrs.frozen(kw_only=True)
class Begun:
    """A check is being made from now on."""

    id: str
    title: str
    level: Level
    #: How many bytes were printed before.
    printed: int = 0


@attrs.frozen(kw_only=True)
class Ended:
    """A check was made."""

    result: CheckResult
    #: Whether it was asked for, and not only required by another.
    wanted: bool = True
    #: How many bytes were printed up to its end.
    printed: int = 0


@attrs.frozen(kw_only=True)
class Refused:
    """Nothing can be checked: there is no such plugin, or its example is wrong."""

    errors: Sequence[Mapping[str, Any]]


@attrs.frozen(kw_only=True)
class Done:
    """All checks were made."""


@attrs.frozen(kw_only=True)
class Printed:
    """Output printed while the checks were made. The only event that no process sends."""

    text: str


Event = Opened | Begun | Ended | Refused | Done | Printed

_EVENTS: Final = {cls.__name__.lower(): cls for cls in (Opened, Begun, Ended, Refused, Done)}


def encode(event: Event) -> bytes:
    """An event as a line."""
    return json.dumps({type(event).__name__.lower(): attrs.asdict(event)}).encode() + b"\n"


def decode(line: bytes) -> Event:
    """The reverse of :func:`encode`."""
    ((name, fields),) = json.loads(line).items()
    if name == "opened":
        fields["ref"] = PluginRef(**fields["ref"])
    if name == "ended":
        fields["result"] = CheckResult.from_dict(fields["result"])
    event: Event = _EVENTS[name](**fields)
    return event
