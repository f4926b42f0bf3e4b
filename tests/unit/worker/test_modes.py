"""What a validation runs under: as if it had not happened."""

import random
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
import torch
from torch import nn

from hostcore.worker.modes import evaluating, modules_in
from hostcore_toolkit import seed_everything


class Named(NamedTuple):
    model: nn.Module
    step: int = 0


@attrs.define
class Slotted:
    model: nn.Module


class Plain:
    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.itself = self


class WithSlots:
    __slots__ = ("missing", "model")

    def __init__(self, model: nn.Module) -> None:
        self.model = model


SHAPES = [
    lambda model: model,
    lambda model: {"model": model},
    lambda model: {"models": {"generator": model}},
    lambda model: {"models": [model]},
    lambda model: (model, None, 3),
    Named,
    Slotted,
    Plain,
    WithSlots,
]


@pytest.mark.parametrize("shape", SHAPES)
def test_models_are_found_wherever_a_trainer_keeps_them(shape: Any) -> None:
    model = nn.Linear(1, 1)
    assert modules_in(shape(model)) == [model]


def test_it_gets_them_back_after_an_error_as_well() -> None:
    model = nn.Dropout()
    with pytest.raises(ZeroDivisionError), evaluating(model, seed=0, step=5, rank=0):
        _ = 1 / 0
    assert model.training


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


def drawn_under(**arguments: int) -> tuple[float, float, float]:
    with evaluating(None, **{"seed": 0, "step": 5, "rank": 0, **arguments}):
        return draws()


def test_random_numbers_follow_from_seed_step_and_rank_and_leave_no_trace() -> None:
    seed_everything(1)
    expected = draws()
    seed_everything(1)
    seen = drawn_under()
    assert draws() == expected
    assert drawn_under() == seen
    assert len({seen, drawn_under(seed=1), drawn_under(step=6), drawn_under(rank=1)}) == 4
