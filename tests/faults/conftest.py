"""What the fault suites share: their modules import each other by name, and their random choices have a seed."""

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

SEED_VARIABLE = "HOSTCORE_FAULT_SEED"


@pytest.fixture
def seed() -> int:
    """The seed of a random test: printed, and taken from ``HOSTCORE_FAULT_SEED`` to repeat a failure."""
    chosen = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(2**32))
    print(f"{SEED_VARIABLE}={chosen}")
    return chosen
