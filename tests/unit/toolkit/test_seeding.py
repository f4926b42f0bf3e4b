"""One seed for all global generators."""

import random

import numpy as np
import pytest
import torch

from hostcore.toolkit import seed_everything


@pytest.fixture(autouse=True)
def _restore_generators():
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def draw():
    return random.random(), float(np.random.random()), float(torch.rand(()))


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, np.int64(5)])
def test_the_same_seed_draws_the_same_numbers(seed):
    seed_everything(seed)
    first = draw()
    seed_everything(seed)
    assert draw() == first


@pytest.mark.parametrize(("one", "other"), [(0, 1), (7, 2**16 + 7), (2**31, 2**32 - 1)])
def test_another_seed_draws_other_numbers_from_each_generator(one, other):
    seed_everything(one)
    first = draw()
    seed_everything(other)
    assert all(a != b for a, b in zip(first, draw(), strict=True))


def test_the_numbers_are_those_of_the_libraries_themselves():
    seed_everything(42)
    drawn = draw()
    assert drawn[0] == random.Random(42).random()
    assert drawn[1] == np.random.RandomState(42).random()
    assert drawn[2] == float(torch.rand((), generator=torch.Generator().manual_seed(42)))


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match="between 0 and"):
        seed_everything(seed)


@pytest.mark.parametrize("seed", [True, np.True_, 1.5, "1", None])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(TypeError):
        seed_everything(seed)
