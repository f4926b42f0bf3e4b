"""The toolkit's schedules have the values of those of transformers, so that a recipe can be moved."""

import pytest
import torch
import transformers

from hostcore_toolkit import schedule

STEPS, WARMUP, DECAY = 50, 7, 12


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.3)


def rates(curve):
    found = []
    for _ in range(STEPS + 3):
        found.append(curve.optimizer.param_groups[0]["lr"])
        curve.optimizer.step()
        curve.step()
    return found


PAIRS = {
    "constant": ("constant_with_warmup", {}, {"kind": "constant"}),
    "linear": ("linear", {}, {"kind": "linear"}),
    "cosine": ("cosine", {}, {"kind": "cosine"}),
    "cosine with a least rate": ("cosine_with_min_lr", {"min_lr_rate": 0.1}, {"kind": "cosine", "min_ratio": 0.1}),
    **{
        f"wsd {shape}": (
            "warmup_stable_decay",
            {"num_decay_steps": DECAY, "decay_type": shape},
            {"kind": "wsd", "decay_steps": DECAY, "decay_shape": shape},
        )
        for shape in ("linear", "cosine", "1-sqrt")
    },
}


@pytest.mark.parametrize(("name", "options", "ours"), PAIRS.values(), ids=PAIRS)
def test_a_schedule_has_the_values_of_the_one_of_transformers(name, options, ours):
    theirs = transformers.get_scheduler(name, optimizer(), WARMUP, STEPS, scheduler_specific_kwargs=options)
    assert rates(schedule(optimizer(), STEPS, warmup_steps=WARMUP, **ours))[:STEPS] == pytest.approx(
        rates(theirs)[:STEPS]
    )
