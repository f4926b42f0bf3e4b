"""What the fault suites share: their modules import each other by name, and look at disks in memory."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from power_scenarios import Checker

#: Where the disks that are replayed are made, thousands of them.
_IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> "Iterator[Checker]":
    """Checks the disks that power cuts leave."""
    from power_scenarios import Checker

    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # of the attempt that looks; its power stays on
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as folder:
        yield Checker(Path(folder))
