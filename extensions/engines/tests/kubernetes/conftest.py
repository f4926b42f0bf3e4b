"""An emulated cluster of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_emulator
import pytest


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster that refuses what the published CRDs do not have, if they are there."""
    monkeypatch.delenv("TRAINER_JOBS_NAMESPACE", raising=False)
    with kubernetes_emulator.cluster(tmp_path / "cluster", checked=True) as cluster:
        yield cluster
