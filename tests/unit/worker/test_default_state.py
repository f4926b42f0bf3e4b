"""The default ``state_dict`` and ``load_state_dict`` of the contract: filled, replaced, refused."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hostcore_hookspecs import HostcoreError
from hostcore_hookspecs.trainer import load_state_dict, state_dict

CTX: Any = SimpleNamespace(device="cpu")


def loaded(state: Any, payload: Any) -> Any:
    load_state_dict(state, payload, CTX)
    return state


def test_a_tensor_that_an_optimizer_updates_is_filled_and_any_other_replaced() -> None:
    trained, plain = torch.zeros(2, requires_grad=True), torch.zeros(2)
    state = loaded({"trained": trained, "plain": plain}, {"trained": torch.ones(2), "plain": torch.ones(3)})
    assert state["trained"] is trained
    assert (trained.tolist(), trained.requires_grad) == ([1.0, 1.0], True)
    assert (state["plain"].tolist(), plain.tolist()) == ([1.0] * 3, [0.0] * 2)


def test_what_shares_the_memory_of_a_model_does_not_change_it() -> None:
    """The best weights so far, which are the present ones at the beginning and a copy later on."""
    model = torch.nn.Linear(1, 1)
    state = {"model": model, "best": model.state_dict()}
    payload = {name: copy.deepcopy(one) for name, one in state_dict(state).items()}
    payload["best"]["weight"] += 1
    expected = payload["model"]["weight"].clone()
    loaded(state, payload)
    assert torch.equal(model.weight, expected)
    assert torch.equal(state["best"]["weight"], expected + 1)


def test_things_are_found_in_dictionaries_and_keep_their_identity() -> None:
    def made() -> dict[str, Any]:
        models = {"g": torch.nn.Linear(1, 1), "d": torch.nn.Linear(1, 1)}
        return {"models": models, "history": [], "counts": {}, "best": None}

    state = made() | {"history": [1.0, torch.ones(1)], "counts": {3: 4}, "best": (0.5, "x")}
    payload = copy.deepcopy(state_dict(state))
    other = made()
    models = dict(other["models"])
    loaded(other, payload)
    assert all(other["models"][name] is models[name] for name in models)
    assert all(torch.equal(other["models"][name].weight, state["models"][name].weight) for name in models)
    assert {name: other[name] for name in other if name != "models"} == {
        name: state[name] for name in state if name != "models"
    }


@pytest.mark.parametrize(
    ("state", "payload", "says"),
    [
        ({"a": 1}, {}, "the state of the checkpoint lacks 'a'"),
        ({}, {"a": 1}, "the state of the checkpoint has 'a', which configure does not make"),
        (
            {"all": {"a": torch.nn.Linear(1, 1)}},
            {"all": {"b": {}}},
            "the state['all'] of the checkpoint lacks 'a', and has 'b', which configure does not make",
        ),
        (
            {"w": torch.zeros(2, requires_grad=True)},
            {"w": torch.zeros(1)},
            "the state['w'] of the checkpoint is torch.float32 of shape (1,), not torch.float32 of shape (2,)",
        ),
    ],
)
def test_a_checkpoint_of_another_state_is_refused(state: Any, payload: Any, says: str) -> None:
    with pytest.raises(HostcoreError) as raised:
        loaded(state, payload)
    assert (raised.value.code, raised.value.message) == ("trainer.state_differs", says)
    assert "load_state_dict" in str(raised.value.hint)
