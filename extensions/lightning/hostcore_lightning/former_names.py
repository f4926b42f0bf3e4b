"""``pytorch_lightning`` and ``lightning_fabric``: the former names of packages, for modules that import them.

Both distributions have the same code, and classes of their own: a module of the one is no LightningModule of the other.
Half of the packages on the index import the former name. In a process that loads the trainer, both names are the same
modules.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

_PRESENT: Final = {"pytorch_lightning": "lightning.pytorch", "lightning_fabric": "lightning.fabric"}


class FormerNames(MetaPathFinder, Loader):
    """Finds a module of a former package in ``lightning``, unless the former package was imported before."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - that of the package
        target: ModuleType | None = None,  # noqa: ARG002 - of a reload
    ) -> ModuleSpec | None:
        """Return the spec of a module by its former name; None for other modules."""
        package, dot, rest = fullname.partition(".")
        if package not in _PRESENT or find_spec("lightning") is None:
            return None
        imported = sys.modules.get(package)
        if imported is not None and imported is not sys.modules.get(_PRESENT[package]):
            return None
        present = _PRESENT[package] + dot + rest
        if find_spec(present) is None:
            return None
        return ModuleSpec(fullname, self, loader_state=present)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module of the present name."""
        module = importlib.import_module(spec.loader_state)
        spec.loader_state = module.__spec__  # which the import is about to replace
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module, which has run, its own spec back."""
        spec: Any = module.__spec__
        module.__spec__ = spec.loader_state


def find_former_names() -> None:
    """Let this process find the former names; once."""
    if not any(isinstance(one, FormerNames) for one in sys.meta_path):
        sys.meta_path.insert(0, FormerNames())
