"""AdamW with warmup and cosine decay."""

import math

import attrs
import pytest
import torch

from hostcore_hookspecs import InvalidSettings
from hostcore_toolkit import build_default_adamw_bundle


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))


def rates(bundle, steps):
    """The learning rate of each of the first steps."""
    found = []
    for _ in range(steps):
        found.append(bundle.optimizer.param_groups[0]["lr"])
        bundle.optimizer.step()
        bundle.scheduler.step()
    return found


def test_without_settings_it_is_adamw_with_the_documented_defaults():
    bundle = build_default_adamw_bundle(model())
    group = bundle.optimizer.param_groups[0]
    assert type(bundle.optimizer) is torch.optim.AdamW
    assert (group["lr"], group["weight_decay"], group["betas"]) == (1e-4, 0.0, (0.9, 0.999))
    assert bundle.scheduler is None


@attrs.frozen(kw_only=True)
class Hyperparams:
    learning_rate: float = 0.5
    weight_decay: float = 0.25
    betas: tuple[float, float] = (0.5, 0.75)
    warmup_steps: int | None = None
    unrelated: str = "x"


@pytest.mark.parametrize(
    "hyperparams",
    [
        Hyperparams(),
        {"learning_rate": 0.5, "weight_decay": 0.25, "betas": [0.5, 0.75], "unrelated": "x"},
        {"lr": 0.5, "weight_decay": 0.25, "betas": (0.5, 0.75)},
        {"learning_rate": 0.5, "lr": 9.0, "weight_decay": 0.25, "betas": (0.5, 0.75), "warmup_steps": None},
    ],
    ids=["attrs", "mapping", "lr", "learning_rate before lr"],
)
def test_settings_come_from_a_mapping_or_an_attrs_instance(hyperparams):
    group = build_default_adamw_bundle(model(), hyperparams=hyperparams).optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], tuple(group["betas"])) == (0.5, 0.25, (0.5, 0.75))


def test_the_argument_max_steps_goes_before_the_hyperparameter():
    bundle = build_default_adamw_bundle(model(), hyperparams={"max_steps": 100}, max_steps=2)
    assert rates(bundle, 3)[-1] == 0.0
    for keys in (
        {"max_steps": 0},
        {"hyperparams": {"max_steps": None}},
        {"hyperparams": {"max_steps": 9}, "max_steps": 0},
    ):
        assert build_default_adamw_bundle(model(), **keys).scheduler is None


def test_the_learning_rate_follows_the_documented_formula():
    bundle = build_default_adamw_bundle(model(), hyperparams={"lr": 2.0, "warmup_steps": 4}, max_steps=10)
    warmup = [2.0 * (0.1 + 0.9 * t / 4) for t in range(4)]
    decay = [2.0 * 0.5 * (1 + math.cos(math.pi * (t - 4) / 6)) for t in range(4, 10)]
    assert rates(bundle, 13) == pytest.approx([*warmup, *decay, 0.0, 0.0, 0.0])


def test_frozen_parameters_of_a_module_are_left_out():
    module = model()
    module[0].requires_grad_(False)
    trained = build_default_adamw_bundle(module).optimizer.param_groups[0]["params"]
    assert [id(p) for p in trained] == [id(p) for p in module[1].parameters()]


def test_parameters_and_groups_are_taken_as_they_are():
    module = model()
    assert len(build_default_adamw_bundle(module.parameters()).optimizer.param_groups[0]["params"]) == 4
    groups = [{"params": module[0].parameters(), "lr": 1.0}, {"params": module[1].parameters()}]
    found = build_default_adamw_bundle(groups, hyperparams={"lr": 0.5}, max_steps=4)
    assert [group["lr"] for group in found.optimizer.param_groups] == [1.0, 0.5]


def test_nothing_to_train_and_what_is_neither_module_nor_parameters_nor_hyperparameters_is_an_error():
    for params in (None, 3, "model", torch.zeros(2), {"a": torch.zeros(2)}):
        with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module"):
            build_default_adamw_bundle(params)
    with pytest.raises(TypeError, match="mapping or an attrs instance"):
        build_default_adamw_bundle(model(), hyperparams=[("lr", 1.0)])
    with pytest.raises(ValueError, match="Sequential has no parameter that requires a gradient"):
        build_default_adamw_bundle(model().requires_grad_(False))
    with pytest.raises(ValueError, match="empty"):
        build_default_adamw_bundle([])


@pytest.mark.parametrize(
    ("hyperparams", "pointer"),
    [
        ({"learning_rate": "1e-4"}, "/learning_rate"),
        ({"learning_rate": -1.0}, "/learning_rate"),
        ({"lr": float("nan")}, "/lr"),
        ({"lr": True}, "/lr"),
        ({"weight_decay": float("inf")}, "/weight_decay"),
        ({"betas": 0.9}, "/betas"),
        ({"betas": [0.9]}, "/betas"),
        ({"betas": [0.9, 0.99, 0.999]}, "/betas"),
        ({"betas": "ab"}, "/betas"),
        ({"betas": [0.9, 1.0]}, "/betas/1"),
        ({"betas": ["0.9", 0.99]}, "/betas/0"),
        ({"warmup_steps": 1.5}, "/warmup_steps"),
        ({"warmup_steps": -1}, "/warmup_steps"),
        ({"max_steps": "10"}, "/max_steps"),
        ({"warmup_steps": 10, "max_steps": 10}, "/warmup_steps"),
        ({"warmup_steps": 10}, "/warmup_steps"),
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_an_error_that_points_at_it(hyperparams, pointer):
    with pytest.raises(InvalidSettings) as caught:
        build_default_adamw_bundle(model(), hyperparams=hyperparams)
    assert caught.value.pointer == pointer
    assert pointer.split("/")[1].split("_")[0] in caught.value.message
