"""How the built-in launcher ``ray`` is checked: with a real cluster on this machine."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from checkout import EXTENSIONS

KIND = "launcher"
_CLUSTER = EXTENSIONS / "engines/tests/ray/cluster.py"


def _cluster() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ray_cluster_of_the_tests", _CLUSTER)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class OneNode:
    """The programs are jobs of a cluster here, which takes a second or two for each."""

    runs_here = True
    patience_seconds = 60.0

    def __init__(self) -> None:
        ray = _cluster()
        if ray.MISSING:
            pytest.skip(ray.MISSING)
        self._held = ray.cluster(cpus=4)
        self._cluster: Any = None

    def __enter__(self) -> OneNode:
        self._cluster = self._held.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._held.__exit__(*exception)

    @property
    def settings(self) -> dict[str, Any]:
        """Where the cluster is."""
        token = self._cluster.folder / "token"
        return {"address": self._cluster.address, "token": {"$secret": f"file:{token}"}}


EXAMPLES: dict[str, Callable[[Path], dict[str, Any]]] = {"ray": lambda tmp_path: {"harness": OneNode}}
