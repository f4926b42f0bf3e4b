"""The global random generators: set at the start, stored in checkpoints, restored on resume."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def capture() -> dict[str, Any]:
    """The state of the generators of Python, NumPy and torch, as a tree that a checkpoint can store."""
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


@contextmanager
def kept() -> Iterator[None]:
    """Leave the generators as they were: whatever draws meanwhile leaves no trace."""
    states = capture()
    try:
        yield
    finally:
        restore(states)


def restore(states: Mapping[str, Any]) -> None:
    """Bring the generators back to what :func:`capture` saw."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
