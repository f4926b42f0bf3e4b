"""What ``module`` and ``datamodule`` may name, and objects among the arguments."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lit_jobs import section
from lit_named import Smoothed
from lit_watch import Watch

from hostcore.checkpoints.state import read_state
from hostcore.errors import Errors

SMOOTHED = {"$object": "lit_named:Smoothed", "init": {"amount": 0.1}}
WAYS: dict[str, dict[str, Any]] = {
    "function": {"module": "lit_named:build"},
    "classmethod": {
        "module": "lit_named:Built.from_rows",
        "init": {"data": {"$object": "lit_named:build_data", "init": {"rows": 80}}},
    },
    "objects": {"init": {"losses": [SMOOTHED], "activation": {"$object": "torch.nn:Tanh"}}},
    "data": {"datamodule": "lit_named:build_data", "datamodule_init": {"rows": 160}},
}


def trained(by_hostcore: Callable[..., Watch], run_id: str = "whole", **hyperparams: Any) -> Watch:
    return by_hostcore("Built", run_id=run_id, hyperparams={"module": "lit_named:Built", **hyperparams}, epochs=1)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_trains_the_same(by_hostcore: Callable[..., Watch], way: str) -> None:
    assert trained(by_hostcore, way, **WAYS[way]).losses == trained(by_hostcore).losses


def test_of_an_instance_each_run_has_a_copy(by_hostcore: Callable[..., Watch]) -> None:
    one, other = (trained(by_hostcore, run_id, module="lit_named:INSTANCE") for run_id in "ab")
    assert one.losses == other.losses
    assert one.losses[0] > one.losses[-1]


def test_hyperparameters_that_are_objects_are_text_in_a_checkpoint(by_hostcore: Callable[..., Watch]) -> None:
    trained(by_hostcore, "a")
    state: Any = read_state(Path("runs/a/checkpoints/step-000020"), "state")
    assert state["hyper_parameters"] == {"losses": (str(Smoothed(0.1)),), "activation": str(torch.nn.Tanh)}


@pytest.mark.parametrize(
    ("hyperparams", "pointer", "message"),
    [
        ({"module": "lit_named:INSTANCE", "init": {"x": 1}}, "/init", "is an instance, which takes no arguments"),
        ({"module": "lit_named:NUMBER"}, "/module", "lit_named:NUMBER is a int"),
        ({"module": "lit_named:build_nothing"}, "/module", "returned a int, no LightningModule"),
        ({"init": {"losses": [{"$object": "lit_named:None_"}]}}, "/init/losses/0/$object", "cannot be imported"),
        ({"init": {"losses": {"$object": 3}}}, "/init/losses/$object", "3 is no import path"),
        ({"init": {"losses": {"$object": "a:b", "inti": {}}}}, "/init/losses", "'inti' stands beside"),
        ({"init": {"losses": [{**SMOOTHED, "init": {}}]}}, "/init/losses/0/init", "missing a required argument"),
        ({"init": {"losses": {"$object": "lit_named:NUMBER", "init": {}}}}, "/init/losses/init", "cannot be called"),
    ],
)
def test_what_cannot_be_made_is_one_error_at_its_place(
    by_hostcore: Callable[..., Watch], hyperparams: dict[str, Any], pointer: str, message: str
) -> None:
    with pytest.raises(Errors) as caught:
        by_hostcore("Built", hyperparams={"module": "lit_named:Built", **hyperparams}, dataset=section(160, 8))
    (error,) = caught.value.errors
    assert error.pointer == f"/hyperparams{pointer}"
    assert message in error.message
