"""One check of the whole session: no module of the project is loaded under two names."""

import importlib.util
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

DISTRIBUTIONS = (
    "hostcore_hookspecs",
    "hostcore_toolkit",
    "hostcore_builtin_plugins",
    "hostcore",
    "hostcore_chaos",
    "hostcore_conformance",
    "hostcore_debug",
    "hostcore_engines",
    "hostcore_environments",
    "hostcore_inspect",
    "hostcore_lightning",
    "hostcore_service",
    "hostcore_sources",
    "hostcore_sweeps",
    "hostcore_trackers",
    "hostcore_transformers",
)

LoadedTwice = Callable[[Mapping[str, ModuleType]], dict[str, list[str]]]


def package_folder(name: str) -> Path:
    """The folder that a package is imported from: of the checkout, or of an installed wheel."""
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is not installed"
    assert spec.submodule_search_locations, f"{name} is not a package"
    return Path(spec.submodule_search_locations[0])


def _loaded_twice(modules: Mapping[str, ModuleType]) -> dict[str, list[str]]:
    """The names of modules by their file, for every file of the project that different module objects come from."""
    roots = tuple(f"{os.path.realpath(package_folder(name))}{os.sep}" for name in DISTRIBUTIONS)
    by_file: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for name, module in modules.items():
        file = getattr(module, "__file__", None)
        if file and (real := os.path.realpath(file)).startswith(roots):
            by_file[real].setdefault(id(module), name)
    return {file: sorted(names.values()) for file, names in by_file.items() if len(names) > 1}


@pytest.fixture(scope="session")
def modules_loaded_twice() -> LoadedTwice:
    """What the check at the end of the session calls."""
    return _loaded_twice


@pytest.fixture(scope="session", autouse=True)
def no_module_is_loaded_under_two_names(modules_loaded_twice: LoadedTwice) -> Iterator[None]:
    """Looks when the last test of the session is over: a second copy would break every isinstance()."""
    yield
    assert modules_loaded_twice(dict(sys.modules)) == {}


@pytest.fixture(scope="session")
def packages() -> dict[str, Path]:
    """The folders of the packages by import name."""
    return {name: package_folder(name) for name in DISTRIBUTIONS}
