"""Names of the contract that will go, and names that have gone. Every text about them is here.

A name is deprecated in one minor version and removed two minors later. Until then it works as before, and its user
is warned; afterwards it is an error that still names the replacement. So an entry is added here when a name is
deprecated, and stays when it is removed; removing a name means to take it out of its specification, or of the class or
module that has it.

Fields of value types are not removed before the next major version, and have no table.
"""

import importlib
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from hostcore_hookspecs.api_version import API_VERSION


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a release; ``1.3.0rc1`` has all that 1.3.0 will have."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


@attrs.frozen(kw_only=True)
class Deprecation:
    """Deprecation of a name: versions, and its replacement."""

    #: Versions of the contract: ``1.1.0``, ``1.3.0``.
    since: str
    removed_in: str
    #: What its user is to do, as a sentence without a full stop: ``take run_state.stop_requests``.
    instead: str
    #: A public name only: the module of this package that has it.
    module: str = ""

    @property
    def is_removed(self) -> bool:
        """True if the installed contract no longer has the name."""
        return _numbers(API_VERSION) >= _numbers(self.removed_in)

    @property
    def history(self) -> str:
        """Text after the name in a sentence: ``is deprecated since 1.1.0 and will be removed in 1.3.0``."""
        if self.is_removed:
            return f"was removed from the contract in {self.removed_in} (deprecated since {self.since})"
        return f"is deprecated since {self.since} and will be removed in {self.removed_in} of the contract"


#: By kind and hook; ``callback_state`` and other methods that the host calls on a component itself are hooks, too.
HOOKS: Final[Mapping[tuple[str, str], Deprecation]] = MappingProxyType({})
#: By kind, hook and argument.
ARGUMENTS: Final[Mapping[tuple[str, str, str], Deprecation]] = MappingProxyType({})
#: By the name that plugins import from ``hostcore_hookspecs``.
NAMES: Final[Mapping[str, Deprecation]] = MappingProxyType({})

_importers: dict[str, set[str]] = defaultdict(set)


class RemovedName(ImportError):
    """A plugin imports a name that the contract has no more.

    Not an ``AttributeError``: ``from hostcore_hookspecs import …`` would put its own message in the place of this one.
    """


def public_name(name: str) -> Any:
    """Return the object under a deprecated name; its user is recorded, and warned.

    :raises RemovedName: It was deprecated, and has gone.
    :raises AttributeError: It is no name of the contract, and never was one.
    """
    deprecation = NAMES.get(name)
    if deprecation is None:
        raise AttributeError(f"module 'hostcore_hookspecs' has no attribute {name!r}")
    text = f"hostcore_hookspecs.{name} {deprecation.history}: {deprecation.instead}"
    if deprecation.is_removed:
        raise RemovedName(text, name=name)
    _importers[name].add(_importer())
    warnings.warn(text, DeprecationWarning, stacklevel=3)  # counted without the frames of Python's import system
    return getattr(importlib.import_module(f"hostcore_hookspecs.{deprecation.module}"), name)


def removed_hook(kind: str, hook: str) -> Deprecation | None:
    """Return the deprecation of a hook that a kind no longer has; None if it still has it, or never had it."""
    deprecation = HOOKS.get((kind, hook))
    return deprecation if deprecation is not None and deprecation.is_removed else None


def removed_arguments(kind: str, hook: str) -> Mapping[str, Deprecation]:
    """The arguments that a hook has no more, by name."""
    return {
        argument: deprecation
        for (of_kind, of_hook, argument), deprecation in ARGUMENTS.items()
        if (of_kind, of_hook) == (kind, hook) and deprecation.is_removed
    }


def importers(name: str) -> frozenset[str]:
    """The modules that have asked for a deprecated public name in this process."""
    return frozenset(_importers.get(name, ()))


def _importer() -> str:
    """The module that names something of this package: above public_name, ``__getattr__`` and the import system."""
    depth = 3
    while (module := str(sys._getframe(depth).f_globals.get("__name__"))) == "importlib._bootstrap":
        depth += 1
    return module
