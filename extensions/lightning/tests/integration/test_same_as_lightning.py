"""The same seed, data and order: the same numbers as Lightning's own Trainer, to the last bit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, EMAWeightAveraging, WeightAveraging
from lit_jobs import by_lightning, section
from lit_watch import LateAverage, Watch
from user_modules import Hooked

VALIDATION = {"validation": section(40), "validate_every": "epoch"}
#: Its ``on_fit_start`` comes before the first step, so that its validation is not checked before.
HOOKED = {"gradient_clip_val": 0.5, "num_sanity_val_steps": 0}
CLIPPED = {"gradient_clip_val": 0.02, "gradient_clip_algorithm": "value"}
WITHOUT_TEST = {"gradient_clip_val": 0.5, "datamodule": "user_modules:NoTest"}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # the module, keys of the job, options of Lightning's Trainer
    "metrics, validation, plateau": ("Classifier", VALIDATION, {}),
    "dictionaries and None": ("Returns", {}, {}),
    "plateau by steps": ("StepPlateau", {}, {}),
    "two optimizers by hand": ("Adversarial", {}, {}),
    "accumulated by hand": ("ByHand", {}, {}),
    "accumulated": ("Plain", {"accumulate": 2}, {"accumulate_grad_batches": 2}),
    "bf16": ("Classifier", {**VALIDATION, "precision": "bf16"}, {"precision": "bf16-mixed"}),
    "clipped by norm": ("Plain", {"hyperparams": {"gradient_clip_val": 0.1}}, {"gradient_clip_val": 0.1}),
    "clipped by value": ("Plain", {"hyperparams": CLIPPED}, CLIPPED),
    "hooks": ("Hooked", {**VALIDATION, "hyperparams": WITHOUT_TEST}, HOOKED),
}
FORMS = ("single", "list", "two lists", "frequency", "one cycle", "lbfgs")


def same(one: Watch, other: Watch) -> None:
    assert torch.equal(torch.tensor(one.losses), torch.tensor(other.losses)) or [*map(str, one.losses)] == [
        *map(str, other.losses)
    ]
    assert one.rates == other.rates
    assert one.lasts == other.lasts
    assert one.validated == other.validated
    assert one.weights.keys() == other.weights.keys()
    for name, value in one.weights.items():
        assert torch.equal(value, other.weights[name]), name


@pytest.mark.parametrize("case", CASES)
def test_losses_rates_metrics_weights_and_the_order_of_hooks(by_hostcore: Callable[..., Watch], case: str) -> None:
    module, keys, trainer = CASES[case]
    if "validation" not in keys:
        trainer = {"limit_val_batches": 0, **trainer}
    Hooked.calls.clear()
    found, called = by_hostcore(module, rows=80, **keys), Hooked.calls[:]
    Hooked.calls.clear()
    same(found, by_lightning(module, **trainer))
    assert called == Hooked.calls


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_configure_optimizers(by_hostcore: Callable[..., Watch], form: str) -> None:
    found = by_hostcore("Plain", rows=80, hyperparams={"init": {"form": form}})
    same(found, by_lightning("Plain", {"form": form}, limit_val_batches=0))


@pytest.mark.parametrize(
    ("callback", "init", "steps"),
    [
        pytest.param(EMAWeightAveraging, {"decay": 0.9}, 30, id="an exponential average of the weights"),
        pytest.param(WeightAveraging, {}, 30, id="an average over all steps"),
        pytest.param(LateAverage, {}, 30, id="from an epoch on (SWA)"),
        pytest.param(EarlyStopping, {"monitor": "val_loss", "patience": 1, "min_delta": 10.0}, 20, id="an end"),
    ],
)
def test_callbacks(by_hostcore: Callable[..., Watch], callback: Any, init: dict[str, Any], steps: int) -> None:
    """Averages of the weights are validated with, and taken at the end."""
    use = {"use": f"{callback.__module__}:{callback.__name__}", "init": init}
    found = by_hostcore("Classifier", rows=80, **VALIDATION, hyperparams={"callbacks": [use]})
    assert len(found.losses) == steps
    same(found, by_lightning("Classifier", callbacks=[callback(**init)]))


def test_the_data_module_says_all_about_the_data_and_metrics_are_below_the_name_of_their_split(
    by_hostcore: Callable[..., Watch], tmp_path: Path
) -> None:
    found = by_hostcore("Classifier", dataset=None, validate_every="epoch", epochs=2)
    own = by_lightning("Classifier", limit_train_batches=1.0, max_epochs=2)
    assert (found.losses, found.validated) == (own.losses, own.validated)
    events = map(json.loads, (tmp_path / "runs/fit/logs/events.jsonl").read_text().splitlines())
    names = {name for event in events for name in event.get("metrics", ())}
    training = {"train/loss", "train/loss_step", "train/loss_epoch", "train/acc"}
    assert names == training | {"val/loss", "val/f1", "val/auroc", "test/loss"}
