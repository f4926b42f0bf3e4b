"""What is loaded, and when."""

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import hostcore
import hostcore_hookspecs
from hostcore_hookspecs import API_VERSION, TRAINER_API_VERSION

IMPORT_EVERYTHING = """
import importlib, json, pkgutil, sys
import hostcore_hookspecs
for module in pkgutil.walk_packages(hostcore_hookspecs.__path__, "hostcore_hookspecs."):
    importlib.import_module(module.name)
print(json.dumps(sorted(sys.modules)))
"""


def test_the_contract_imports_neither_torch_nor_pyarrow_nor_the_host() -> None:
    answer = subprocess.run([sys.executable, "-c", IMPORT_EVERYTHING], capture_output=True, text=True, check=True)
    loaded = set(json.loads(answer.stdout))
    assert "hostcore_hookspecs.trainer" in loaded
    assert loaded.isdisjoint({"torch", "pyarrow", "numpy", "hostcore", "hostcore_builtin_plugins"})


def test_a_module_loaded_under_a_second_name_is_found(
    modules_loaded_twice: Callable[[Mapping[str, ModuleType]], dict[str, list[str]]],
) -> None:
    file = str(Path(hostcore_hookspecs.__file__).with_name("step.py"))
    spec = importlib.util.spec_from_file_location("hookspecs.hostcore_hookspecs.step", file)
    assert spec is not None and spec.loader is not None
    second = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(second)

    first = importlib.import_module("hostcore_hookspecs.step")
    found = modules_loaded_twice({first.__name__: first, second.__name__: second, "alias": first})

    assert list(found.values()) == [["hookspecs.hostcore_hookspecs.step", "hostcore_hookspecs.step"]]


def test_the_host_its_toolkit_and_its_built_in_plugins_share_one_version() -> None:
    version = importlib.metadata.version
    assert version("hostcore") == hostcore.__version__
    for name in ("hostcore-toolkit", "hostcore-builtin-plugins"):
        assert version(name) == version("hostcore")
        assert f"{name}=={version('hostcore')}" in (importlib.metadata.requires("hostcore") or [])


def test_the_version_of_the_contract_is_that_of_its_distribution() -> None:
    assert importlib.metadata.version("hostcore-hookspecs") == API_VERSION
    assert API_VERSION.split(".")[0] == TRAINER_API_VERSION.removeprefix("v")
