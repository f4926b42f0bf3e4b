"""Deprecated names of the contract that a plugin uses. The names and the texts are the contract's own.

pluggy could warn about arguments (``warn_on_impl_args``). It would do so as a Python warning, which is not shown in a
run, without naming the distribution, and not at all about hooks, or names that have gone.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from hostcore.plugins.errors import named
from hostcore.plugins.implementations import hooks_of
from hostcore.plugins.installed import package_of
from hostcore.plugins.signatures import Implementation
from hostcore_hookspecs import deprecated
from hostcore_hookspecs.deprecated import Deprecation
from hostcore_hookspecs.kinds import KINDS, Kind
from hostcore_hookspecs.plan import PluginRef

if TYPE_CHECKING:
    from hostcore.plugins.component import Component


@attrs.frozen(kw_only=True)
class DeprecatedUse:
    """A deprecated name that a plugin uses. It works as before, for now."""

    ref: PluginRef
    #: What is deprecated: ``the argument 'requested_by' of the hook on_stop_requested``.
    what: str
    deprecation: Deprecation

    @property
    def message(self) -> str:
        """One sentence: plugin, distribution, what, since when, when it goes, what to use instead."""
        return f"{named(self.ref)} uses {self.what}, which {self.deprecation.history}: {self.deprecation.instead}"


def deprecated_uses(ref: PluginRef, implementations: Sequence[Implementation]) -> tuple[DeprecatedUse, ...]:
    """Return the deprecated names that a plugin uses: hooks, their arguments, and imports from the contract.

    :param ref: The plugin; it has been imported in this process.
    :param implementations: What it implements and wraps, as ``Component.implementations`` has it.
    """
    used: dict[str, Deprecation] = {}
    for found in implementations:
        kind = _kind_of(found.hook, KINDS[ref.kind])
        deprecation = deprecated.HOOKS.get((kind.name, found.hook))
        if deprecation is not None:
            used[f"the {kind.label} hook {found.hook}"] = deprecation
        for argument in found.arguments:
            deprecation = deprecated.ARGUMENTS.get((kind.name, found.hook, argument))
            if deprecation is not None:
                used[f"the argument {argument!r} of the hook {found.hook}"] = deprecation
    package = package_of(ref.value)
    for name, deprecation in deprecated.NAMES.items():
        if any(module.partition(".")[0] == package for module in deprecated.importers(name)):
            used[f"hostcore_hookspecs.{name}"] = deprecation
    return tuple(DeprecatedUse(ref=ref, what=what, deprecation=found) for what, found in used.items())


def deprecation_warnings(components: "Iterable[Component]") -> tuple[str, ...]:
    """Return the warnings for the components of a run: each use of each plugin once, however often a job names it."""
    uses = [use for one in components for use in deprecated_uses(one.ref, one.implementations)]
    return tuple(dict.fromkeys(use.message for use in uses))


def _kind_of(hook: str, own: Kind) -> Kind:
    """Return the kind that a hook belongs to; the own kind first, since reporters and uploaders both have ``open``."""
    reachable = [own, *(kind for kind in KINDS.values() if kind.room == own.room == "worker")]
    return next((kind for kind in reachable if hook in hooks_of(kind.name)), own)
