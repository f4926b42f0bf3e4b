"""Tensors that state_dict places into files of their own: where they lie, who reads them, and what comes back."""

import os

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from hostcore.checkpoints.encoding import encode_state
from hostcore.checkpoints.errors import CheckpointError, UnstorableState
from hostcore.checkpoints.snapshot import StateBuffer
from hostcore.checkpoints.state import read_state
from hostcore_hookspecs import TensorFile


@pytest.fixture
def stored(tmp_path):
    """Stores a state, and gives it back as it is read."""

    def stored(state):
        StateBuffer().copy(encode_state(state)).write(tmp_path, "state")
        return read_state(tmp_path, "state")

    return stored


def test_the_file_has_the_names_and_the_metadata_that_were_given(stored, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    weights = TensorFile("model.safetensors", model.state_dict(), {"base": "tiny"})
    found = stored({"model": weights, "step": 3})
    with safe_open(tmp_path / "trainer/model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt", "base": "tiny"}
        assert set(file.keys()) == set(model.state_dict())
    assert type(found["model"]) is dict
    assert list(found["model"]) == list(model.state_dict())
    model.load_state_dict(found["model"], strict=True)
    assert not (tmp_path / "state.safetensors").exists()  # nothing else is a tensor


def test_nothing_is_stored_twice_and_everything_else_stays_where_it_was(stored, tmp_path):
    weight, moment = torch.randn(40, 40), torch.randn(40, 40, dtype=torch.float64)
    state = {
        "optimizer": {"exp_avg": moment, "rows": np.arange(5)},
        "model": TensorFile("a/b/model.safetensors", {"w": weight, "half": weight.half()}),
        "also": weight,
        "head": TensorFile("head.safetensors", {"odd": torch.arange(3, dtype=torch.uint8)}),
    }
    found = stored(state)
    assert set(load_file(tmp_path / "state.safetensors")) == {"/optimizer/exp_avg", "/optimizer/rows"}
    assert set(load_file(tmp_path / "trainer/a/b/model.safetensors")) == {"w", "half"}
    assert torch.equal(found["also"], weight)
    assert found["also"].data_ptr() == found["model"]["w"].data_ptr()
    assert torch.equal(found["model"]["half"], weight.half())
    assert torch.equal(found["optimizer"]["exp_avg"], moment)
    assert found["optimizer"]["rows"].tolist() == [0, 1, 2, 3, 4]
    assert found["head"]["odd"].tolist() == [0, 1, 2]


def test_tied_weights_are_under_their_first_name_in_the_file_and_under_both_in_the_state(stored, tmp_path):
    embedding = torch.randn(4, 2)
    weights = TensorFile("model.safetensors", {"embedding": embedding, "head": embedding})
    assert len(weights) == len({**weights}) == 2, "callbacks read it as the mapping that it is"
    found = stored({"before": embedding, "model": weights})
    assert torch.equal(found["before"], embedding)
    assert set(load_file(tmp_path / "trainer/model.safetensors")) == {"embedding"}
    assert found["model"]["head"].data_ptr() == found["model"]["embedding"].data_ptr()
    assert torch.equal(found["model"]["head"], embedding)


def test_a_file_of_save_checkpoint_is_not_replaced(stored, tmp_path):
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/model.safetensors").write_bytes(b"mine")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is there already"):
        stored({"model": TensorFile("model.safetensors", {"w": torch.ones(3)})})
    assert (tmp_path / "trainer/model.safetensors").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "path", ["", "model.bin", "/model.safetensors", "../model.safetensors", "a//b.safetensors", "./a.safetensors"]
)
def test_a_path_that_is_not_below_the_folder_is_refused(path):
    with pytest.raises(ValueError, match="no name of a tensor file"):
        TensorFile(path, {})


@pytest.mark.parametrize("arguments", [({"__metadata__": torch.ones(1)},), ({1: torch.ones(1)},), ({}, {"step": 3})])
def test_names_and_metadata_that_the_format_does_not_have_are_refused(arguments):
    with pytest.raises(ValueError, match="safetensors file"):
        TensorFile("model.safetensors", *arguments)


def test_what_is_no_tensor_and_a_second_file_of_a_name_are_refused_with_their_place():
    with pytest.raises(UnstorableState, match=r"at /model/w is of class builtins\.int, in a TensorFile"):
        encode_state({"model": TensorFile("model.safetensors", {"w": 3})})
    twice = TensorFile("model.safetensors", {"w": torch.ones(1)})
    with pytest.raises(UnstorableState, match=r"at /b is a second file that is called trainer/model\.safetensors"):
        encode_state({"a": twice, "b": twice})


def test_what_does_not_fit_on_the_disk_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    """The real full disk is in tests/e2e/test_disk_full.py; here, one that has a little room."""
    told = list(os.statvfs(tmp_path))
    told[3] = told[4] = 100_000 // told[1]  # blocks that are free for root, and for others
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(told))
    snapshot = StateBuffer().copy(encode_state({"model": TensorFile("m.safetensors", {"w": torch.ones(20_000)})}))
    with pytest.raises(CheckpointError, match="No space left on device"):
        snapshot.write(tmp_path, "state")
    assert not (tmp_path / "trainer/m.safetensors").exists()
