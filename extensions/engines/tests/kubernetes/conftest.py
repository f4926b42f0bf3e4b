"""An emulated cluster, and runs that are submitted to it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EMULATOR = Path(__file__).parent / "emulator"


def _emulator() -> ModuleType:
    name = "emulated_kubernetes"
    if name not in sys.modules:
        file = EMULATOR / "__init__.py"
        spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(EMULATOR)])
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def emulator() -> ModuleType:
    return _emulator()


@pytest.fixture
def kubernetes(emulator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster that refuses what the published CRDs do not have, if they are there."""
    monkeypatch.delenv("TRAINER_JOBS_NAMESPACE", raising=False)
    crds = os.environ.get("HOSTCORE_TEST_CRDS")
    with emulator.cluster(tmp_path / "cluster", crds=Path(crds) if crds else None) as cluster:
        yield cluster
