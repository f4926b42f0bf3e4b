"""The global random generators: set at the start, stored in checkpoints, restored on resume."""

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from hostcore_toolkit import seed_everything


def part_ways(seed: int, rank: int) -> None:
    """Let each rank draw numbers of its own, after all have made the same model. The first keeps its states."""
    if rank > 0:
        seed_everything(seed_of("rank", seed, rank))


def derive(seed: int, step: int, rank: int) -> None:
    """Seed the generators for a run that is resumed from a step on another number of ranks."""
    seed_everything(seed_of("resume", seed, step, rank))


def begin_again(seed: int, step: int, rank: int) -> None:
    """Seed the generators for a step that is made again: where it broke off, and so what it drew, is left to chance."""
    seed_everything(seed_of("again", seed, step, rank))


def seed_of(purpose: str, *numbers: int) -> int:
    """A seed of 32 bits that follows from numbers, and is another for each purpose."""
    text = "/".join([purpose, *map(str, numbers)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


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
