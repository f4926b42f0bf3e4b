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

VALIDATION = {"validation": section(40), "validate_every": "epoch"}
#: It has an ``on_fit_start``, so that its validation is not checked before the first step.
HOOKED = {"gradient_clip_val": 0.5, "num_sanity_val_steps": 0}


def same(one: Watch, other: Watch) -> None:
    assert torch.equal(torch.tensor(one.losses), torch.tensor(other.losses)) or [*map(str, one.losses)] == [
        *map(str, other.losses)
    ]
    assert one.rates == other.rates
    assert one.validated == other.validated
    assert one.weights.keys() == other.weights.keys()
    for name, value in one.weights.items():
        assert torch.equal(value, other.weights[name]), name


@pytest.mark.parametrize(
    ("module", "keys", "trainer"),
    [
        pytest.param("Classifier", VALIDATION, {}, id="metrics, validation, plateau"),
        pytest.param("Returns", {}, {}, id="dictionaries and None"),
        pytest.param("StepPlateau", {}, {}, id="plateau by steps"),
        pytest.param("Adversarial", {}, {}, id="two optimizers by hand"),
        pytest.param("ByHand", {}, {}, id="accumulated by hand"),
        pytest.param("Plain", {"accumulate": 4}, {"accumulate_grad_batches": 4}, id="accumulated"),
        pytest.param("Classifier", {**VALIDATION, "precision": "bf16"}, {"precision": "bf16-mixed"}, id="bf16"),
        pytest.param(
            "Plain",
            {"hyperparams": {"gradient_clip_val": 0.1}},
            {"gradient_clip_val": 0.1},
            id="clipped by norm",
        ),
        pytest.param(
            "Plain",
            {"hyperparams": {"gradient_clip_val": 0.02, "gradient_clip_algorithm": "value"}},
            {"gradient_clip_val": 0.02, "gradient_clip_algorithm": "value"},
            id="clipped by value",
        ),
        pytest.param("Hooked", {**VALIDATION, "hyperparams": {"gradient_clip_val": 0.5}}, HOOKED, id="hooks"),
    ],
)
def test_losses_rates_metrics_and_weights(
    by_hostcore: Callable[..., Watch], module: str, keys: dict[str, Any], trainer: dict[str, Any]
) -> None:
    if "validation" not in keys:
        trainer = {"limit_val_batches": 0, **trainer}
    same(by_hostcore(module, **keys), by_lightning(module, **trainer))


@pytest.mark.parametrize("form", ["single", "list", "two lists", "frequency", "one cycle", "lbfgs"])
def test_all_forms_of_configure_optimizers(by_hostcore: Callable[..., Watch], form: str) -> None:
    found = by_hostcore("Plain", hyperparams={"init": {"form": form}})
    same(found, by_lightning("Plain", {"form": form}, limit_val_batches=0))


@pytest.mark.parametrize(
    ("callback", "init"), [(EMAWeightAveraging, {"decay": 0.9}), (WeightAveraging, {}), (LateAverage, {})]
)
def test_averages_of_the_weights(
    by_hostcore: Callable[..., Watch], callback: type[WeightAveraging], init: dict[str, Any]
) -> None:
    """Exponential, of all steps, and from an epoch on (SWA): validated with, and taken at the end."""
    use = {"use": f"{callback.__module__}:{callback.__name__}", "init": init}
    found = by_hostcore("Classifier", **VALIDATION, hyperparams={"callbacks": [use]})
    same(found, by_lightning("Classifier", callbacks=[callback(**init)]))


def test_a_callback_ends_the_run(by_hostcore: Callable[..., Watch]) -> None:
    init = {"monitor": "val_loss", "patience": 1, "min_delta": 10.0}
    stopping = {"use": "lightning.pytorch.callbacks:EarlyStopping", "init": init}
    found = by_hostcore("Classifier", **VALIDATION, epochs=6, hyperparams={"callbacks": [stopping]})
    own = by_lightning("Classifier", max_epochs=6, callbacks=[EarlyStopping(**init)])
    assert len(found.losses) == 40
    same(found, own)


def test_hooks_are_called_in_the_same_order(by_hostcore: Callable[..., Watch]) -> None:
    from user_modules import Hooked

    Hooked.calls.clear()
    by_hostcore("Hooked", **VALIDATION, hyperparams={"gradient_clip_val": 0.5, "datamodule": "user_modules:NoTest"})
    found = Hooked.calls[:]
    Hooked.calls.clear()
    by_lightning("Hooked", **HOOKED)
    assert found == Hooked.calls


def test_metrics_are_recorded_below_the_name_of_their_split(by_hostcore: Callable[..., Watch], tmp_path: Path) -> None:
    by_hostcore("Classifier", dataset=None, validate_every="epoch", epochs=1)
    events = map(json.loads, (tmp_path / "runs/fit/logs/events.jsonl").read_text().splitlines())
    names = {name for event in events for name in event.get("metrics", ())}
    training = {"train/loss", "train/loss_step", "train/loss_epoch", "train/acc"}
    assert names == training | {"val/loss", "val/f1", "val/auroc", "test/loss"}


def test_the_data_module_says_all_about_the_data(by_hostcore: Callable[..., Watch]) -> None:
    found = by_hostcore("Classifier", dataset=None, validate_every="epoch")
    own = by_lightning("Classifier")
    assert found.losses == own.losses
    assert found.validated == own.validated
