"""What ``describe`` is asked, and what it answers, as values and as the JSON between the two processes."""

from collections.abc import Mapping
from typing import Any

import attrs

from hostcore.events.bounds import bounded_record
from hostcore.plugins.errors import PluginError
from hostcore.plugins.resolve import Selected
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.plan import PluginRef
from hostcore_hookspecs.step import Capabilities


@attrs.frozen(kw_only=True)
class Question:
    """One plugin to describe."""

    kind: str
    #: ``name``, ``distribution/name`` or ``module:symbol``.
    name: str
    #: As a job gives them; then a component is constructed with them. None asks about the class alone.
    settings: Mapping[str, Any] | None = None
    #: Where the job has the settings, and where it names the plugin.
    pointer: str = ""
    named_at: str | None = None

    @classmethod
    def about(cls, selected: Selected) -> "Question":
        """Ask whether a job's use of a plugin works: import, settings, construction, methods."""
        ref = selected.ref
        return cls(
            kind=ref.kind,
            name=ref.name if ref.dist is None else f"{ref.dist}/{ref.name}",
            settings=selected.settings,
            pointer=selected.pointer,
            named_at=selected.named_at,
        )


@attrs.frozen(kw_only=True)
class Description:
    """One plugin, as the worker's interpreter sees it."""

    kind: str
    name: str
    #: None if the name cannot be resolved.
    ref: PluginRef | None = None
    #: The first paragraph of the class's docstring.
    doc: str = ""
    #: The JSON Schema of its settings; None if it declares none.
    settings_schema: Mapping[str, Any] | None = None
    capabilities: Capabilities = attrs.field(factory=Capabilities)
    #: The hooks that it implements, and those that it wraps.
    hooks: tuple[str, ...] = ()
    wraps: tuple[str, ...] = ()
    #: Names of the contract that it uses and that will go: one sentence each.
    deprecated: tuple[str, ...] = ()
    #: Everything that is wrong with it. Those of plugins have their traceback.
    errors: tuple[HostcoreError, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        answer = attrs.asdict(self, filter=attrs.filters.exclude("errors"))
        answer["errors"] = [
            bounded_record({**error.as_dict(), "traceback": getattr(error, "traceback", None)}) for error in self.errors
        ]
        return answer

    @classmethod
    def from_dict(cls, answer: Mapping[str, Any]) -> "Description":
        """The reverse of :meth:`as_dict`. Errors come back as :class:`PluginError`, with their codes."""
        capabilities = answer["capabilities"]
        return cls(
            kind=answer["kind"],
            name=answer["name"],
            ref=PluginRef(**answer["ref"]) if answer["ref"] else None,
            doc=answer["doc"],
            settings_schema=answer["settings_schema"],
            capabilities=Capabilities(**{**capabilities, "precisions": tuple(capabilities["precisions"])}),
            hooks=tuple(answer["hooks"]),
            wraps=tuple(answer["wraps"]),
            deprecated=tuple(answer["deprecated"]),
            errors=tuple(PluginError(**error) for error in answer["errors"]),
        )
