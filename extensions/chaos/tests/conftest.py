"""Drills are looked at with what the fault suites look at runs with."""

import sys

from checkout import ROOT

sys.path.insert(0, str(ROOT / "tests/faults"))
