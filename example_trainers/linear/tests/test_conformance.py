"""The conformance kit: every check of trainers is a test, for each of the two programs."""

import sys
from pathlib import Path

from hostcore_conformance import parametrize_with_checks

sys.path.insert(0, str(Path(__file__).parent))
from harness import InGo, InPython


@parametrize_with_checks("process", harness=InPython)
def test_in_python(check) -> None:
    check()


@parametrize_with_checks("process", harness=InGo)
def test_in_go(check) -> None:
    check()
