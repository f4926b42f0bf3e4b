"""A resolver that imports a name of the contract that is deprecated.

The contract has no such name yet, so this adds one first; nobody else asks for it.
"""

import warnings
from types import MappingProxyType

from hostcore_hookspecs import deprecated
from hostcore_hookspecs.deprecated import Deprecation

_OLD = Deprecation(since="1.0.0", removed_in="9.0.0", instead="import ResolveContext", module="resolver")
deprecated.NAMES = MappingProxyType({**deprecated.NAMES, "REQUIRED": _OLD})

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from hostcore_hookspecs import REQUIRED


class Resolver:
    """Knows no reference."""

    methods = REQUIRED

    def resolve_ref(self, ref: str) -> str | None:
        """Leave every reference to others."""
