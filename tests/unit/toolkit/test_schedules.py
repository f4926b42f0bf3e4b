"""Schedules of the learning rate: their curves, and that a run which goes on stays on its curve."""

import math

import pytest
import torch

from hostcore_hookspecs import InvalidSettings
from hostcore_toolkit import schedule


def optimizer(*rates, as_tensor=False):
    groups = [
        {"params": [torch.nn.Parameter(torch.ones(2))], "lr": torch.tensor(rate) if as_tensor else rate}
        for rate in rates or (1.0,)
    ]
    return torch.optim.AdamW(groups)


def rates(curve, steps, group=0):
    """The learning rate of each of the next steps."""
    found = []
    for _ in range(steps):
        found.append(float(curve.optimizer.param_groups[group]["lr"]))
        curve.optimizer.step()
        curve.step()
    return found


def resumed(from_curve, total_steps, **settings):
    """As a trainer goes on: made anew, then the optimizer's state and the schedule's are loaded."""
    curve = schedule(optimizer(), total_steps, **settings)
    curve.optimizer.load_state_dict(from_curve.optimizer.state_dict())
    curve.load_state_dict(from_curve.state_dict())
    return curve


WARMUP = [0.0, 0.25, 0.5, 0.75]
CURVES = {
    "constant": ({"kind": "constant"}, [*WARMUP, *[1.0] * 8]),
    "linear": ({"kind": "linear"}, [*WARMUP, *[1 - t / 6 for t in range(6)], 0.0, 0.0]),
    "cosine": (
        {"kind": "cosine", "min_ratio": 0.1},
        [*WARMUP, *[0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * t / 6)) for t in range(6)], 0.1, 0.1],
    ),
    "wsd": ({"kind": "wsd", "decay_steps": 4}, [*WARMUP, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]),
    "wsd cosine": (
        {"kind": "wsd", "decay_steps": 2, "decay_shape": "cosine"},
        [*WARMUP, *[1.0] * 4, 1.0, 0.5, 0.0, 0.0],
    ),
    "wsd 1-sqrt": (
        {"kind": "wsd", "decay_fraction": 0.4, "decay_shape": "1-sqrt", "min_ratio": 0.5},
        [*WARMUP, 1.0, 1.0, *[0.5 + 0.5 * (1 - math.sqrt(t / 4)) for t in range(4)], 0.5, 0.5],
    ),
}


@pytest.mark.parametrize(("settings", "expected"), CURVES.values(), ids=CURVES)
def test_a_schedule_follows_its_documented_formula(settings, expected):
    assert rates(schedule(optimizer(), 10, warmup_steps=4, **settings), 12) == pytest.approx(expected)


def test_a_fraction_stands_for_as_many_steps():
    by_share = schedule(optimizer(), 25, kind="wsd", warmup_fraction=0.1, decay_fraction=0.2)
    by_steps = schedule(optimizer(), 25, kind="wsd", warmup_steps=2, decay_steps=5)
    assert rates(by_share, 25) == rates(by_steps, 25)
    assert rates(schedule(optimizer(), 20, kind="wsd"), 21) == [*[1.0] * 18, 1.0, 0.5, 0.0], "the last tenth"
    with pytest.raises(InvalidSettings, match="share of a run without an end"):
        schedule(optimizer(), 0, kind="constant", warmup_fraction=0.1)


def test_groups_of_other_learning_rates_keep_their_ratio():
    settings = {"kind": "cosine", "warmup_steps": 2}
    one, other = (rates(schedule(optimizer(0.5, 0.125), 10, **settings), 10, group) for group in (0, 1))
    assert other == [rate / 4 for rate in one]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "wsd"])
def test_a_run_that_goes_on_has_the_same_learning_rate_at_every_step(kind):
    settings = {"kind": kind, "warmup_steps": 4, "min_ratio": 0.05}
    whole = rates(schedule(optimizer(), 10, **settings), 10)
    for killed_at in (1, 3, 4, 6, 7, 9):
        first = schedule(optimizer(), 10, **settings)
        assert isinstance(first, torch.optim.lr_scheduler.LRScheduler)
        begun = rates(first, killed_at)
        assert begun + rates(resumed(first, 10, **settings), 10 - killed_at) == whole


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "wsd"])
def test_a_run_that_is_extended_follows_the_longer_curve_from_its_first_step_on(kind):
    first = schedule(optimizer(), 10, kind=kind)
    rates(first, 10)
    assert rates(resumed(first, 20, kind=kind), 10) == rates(schedule(optimizer(), 20, kind=kind), 20)[10:]


def test_a_learning_rate_that_is_a_tensor_stays_the_same_tensor():
    curve = schedule(optimizer(1.0, as_tensor=True), 4, kind="linear")
    tensor = curve.optimizer.param_groups[0]["lr"]
    curve.load_state_dict({**curve.state_dict(), "last_epoch": 1})
    assert curve.optimizer.param_groups[0]["lr"] is tensor
    assert float(tensor) == 0.75


def test_a_run_without_an_end_can_be_constant_alone():
    assert rates(schedule(optimizer(), 0, kind="constant", warmup_steps=2), 4) == [0.0, 0.5, 1.0, 1.0]
    for kind in ("linear", "cosine", "wsd"):
        with pytest.raises(InvalidSettings, match="needs to know when the run ends") as caught:
            schedule(optimizer(), 0, kind=kind)
        assert caught.value.pointer == "/kind"


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"kind": "cosin"}, "/kind"),
        ({"kind": "wsd", "decay_shape": "sqrt"}, "/decay_shape"),
        ({"warmup_steps": -1}, "/warmup_steps"),
        ({"warmup_steps": 11}, "/warmup_steps"),
        ({"warmup_steps": 1, "warmup_fraction": 0.1}, "/warmup_fraction"),
        ({"warmup_fraction": 1.5}, "/warmup_fraction"),
        ({"kind": "wsd", "warmup_fraction": 0.6, "decay_fraction": 0.5}, "/warmup_fraction"),
        ({"kind": "wsd", "decay_steps": True}, "/decay_steps"),
        ({"min_ratio": float("nan")}, "/min_ratio"),
        ({"warmup_start": "0.1"}, "/warmup_start"),
    ],
    ids=str,
)
def test_an_argument_that_makes_no_sense_is_an_error_that_names_it(settings, pointer):
    with pytest.raises(InvalidSettings) as caught:
        schedule(optimizer(), 10, **settings)
    assert caught.value.pointer == pointer
