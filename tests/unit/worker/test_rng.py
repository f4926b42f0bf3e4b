"""``ctx.rng``: draws that follow from seed, split, step, batch and rank alone."""

from typing import Any

import numpy as np

from hostcore_hookspecs import Job, RunState
from hostcore_hookspecs.context import StepContext


def drawn(*, seed: int = 1, step: int = 3, batch_index: int = 0, rank: int = 0, split: str = "train") -> int:
    ctx = StepContext(job=Job(max_steps=9, seed=seed), run_state=RunState(step=step), rank=rank, split=split)
    ctx.batch_index = batch_index
    return int(ctx.rng.integers(2**63))


def test_each_place_draws_numbers_of_its_own_and_the_same_again() -> None:
    places: list[dict[str, Any]] = [
        {},
        {"seed": 2**63},
        {"step": 4},
        {"batch_index": 1},
        {"rank": 1},
        {"split": "validation"},
        {"split": "validation", "batch_index": 1},
        {"split": "test"},
    ]
    numbers = [drawn(**place) for place in places]
    assert len(set(numbers)) == len(places)
    assert [drawn(**place) for place in places] == numbers


def test_every_validation_draws_the_same() -> None:
    assert drawn(split="validation", step=3) == drawn(split="validation", step=8)


def test_calls_for_a_batch_go_on_and_the_next_batch_begins_anew() -> None:
    ctx = StepContext(job=Job(max_steps=9))
    first = ctx.rng.random(), ctx.rng.random()
    assert first[0] != first[1]
    ctx.batch_index = 1
    assert ctx.rng.random() not in first
    ctx.batch_index = 0
    assert (ctx.rng.random(), ctx.rng.random()) == first


def test_global_generators_have_no_part_in_it() -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    drawn()
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index, union-attr]
