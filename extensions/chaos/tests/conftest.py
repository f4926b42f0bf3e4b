"""Drills are looked at with what the fault suites look at runs with."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import ROOT

sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests/faults")]

if TYPE_CHECKING:
    from drill_runs import Workshop
    from ledger import Ledger


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> "Workshop":
    from drill_runs import Workshop

    folder = tmp_path_factory.mktemp("drills")
    shutil.copy(ROOT / "tests/faults/fault_trainer.py", folder)
    return Workshop(folder)


@pytest.fixture(scope="module")
def unharmed(workshop: "Workshop") -> "Ledger":
    from drill_runs import drill

    assert workshop.run(drill("unharmed"), "--in-process") == 0
    return workshop.ledger("unharmed")
