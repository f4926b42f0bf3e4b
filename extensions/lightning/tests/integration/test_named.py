"""What ``module`` and ``datamodule`` may name, and objects among the arguments."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lit_jobs import section
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


def trained(by_hostcore: Callable[..., Watch], run_id: str = "whole", *, steps: int = 20, **hyperparams: Any) -> Watch:
    given = {"module": "lit_named:Built", **hyperparams}
    return by_hostcore("Built", run_id=run_id, hyperparams=given, epochs=None, max_steps=steps)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_trains_the_same(by_hostcore: Callable[..., Watch], way: str) -> None:
    assert trained(by_hostcore, way, **WAYS[way]).losses == trained(by_hostcore).losses


def test_of_an_instance_each_run_has_a_copy(by_hostcore: Callable[..., Watch]) -> None:
    one, other = (trained(by_hostcore, run_id, module="lit_named:INSTANCE") for run_id in "ab")
    assert one.losses == other.losses
    assert one.losses[0] > one.losses[-1]


def test_objects_that_a_module_stores_are_those_of_the_module_that_goes_on(by_hostcore: Callable[..., Watch]) -> None:
    whole = trained(by_hostcore)
    trained(by_hostcore, "a", steps=7)
    state: Any = read_state(Path("runs/a/checkpoints/step-000007"), "state")
    assert state["hostcore"]["left_out"] == ["hyper_parameters", "made_of"]
    assert state.keys() & {"made_of", "hyper_parameters", "name"} == {"name"}
    assert trained(by_hostcore, "a").losses == whole.losses[7:]
    events = map(json.loads, Path("runs/a/logs/events.jsonl").read_text().splitlines())
    named = [one["message"] for one in events if one["event"] == "warning"]
    assert len(named) == 2, "once in each attempt"
    assert named[0].startswith("on_save_checkpoint adds 'made_of', which holds a ModuleList")


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
