"""How thorough the suites are that kill processes, send signals and cut the power at many points.

``HOSTCORE_TEST_LONG=1`` tries all points instead of a few. ``HOSTCORE_TEST_SEED`` chooses other points: each test that
uses it prints it, which pytest shows when the test fails.
"""

import os
import random
from collections.abc import Iterator

SEED_VARIABLE = "HOSTCORE_TEST_SEED"
SEED = int(os.environ.get(SEED_VARIABLE) or 1)
IS_LONG = os.environ.get("HOSTCORE_TEST_LONG") == "1"
#: The parts of a life of which each is hit before one is hit again.
_PARTS = 8


def points(few: int, *, long: int) -> int:
    """How many points to try."""
    return long if IS_LONG else few


def instants(rng: random.Random) -> Iterator[float]:
    """Random instants between 0 and 1, without end, spread evenly."""
    while True:
        for part in rng.sample(range(_PARTS), _PARTS):
            yield (part + rng.random()) / _PARTS
