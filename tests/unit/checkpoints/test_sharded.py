"""Tensors that are spread over ranks, on the smallest group there is; several real ranks: e2e/ranks_worker."""

import orjson
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from hostcore.checkpoints.encoding import encode_state
from hostcore.checkpoints.errors import CheckpointError, UnstorableState
from hostcore.checkpoints.sharded import ShardBuffer, is_sharded, shards_folder
from hostcore.checkpoints.snapshot import StateBuffer, write_state
from hostcore.checkpoints.state import read_state


@pytest.fixture(scope="module")
def mesh():
    """A mesh of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.fixture
def store(tmp_path):
    """``store(state)``: write a state as a worker does; the folder."""

    def store(state, name="state"):
        encoded = encode_state(state)
        shards = ShardBuffer().snapshot(encoded.sharded)
        StateBuffer().copy(encoded).write(tmp_path, name)
        shards.write(shards_folder(tmp_path, name), None)
        return tmp_path

    return store


def spread(mesh, *shape, dtype=torch.float32, placement=None):
    content = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    return distribute_tensor(content, mesh, [placement or Shard(0)])


def test_a_spread_tensor_comes_back_whole_without_a_present_state(mesh, store):
    scalar = distribute_tensor(torch.tensor(3.0), mesh, [Replicate()])
    tensors = {"w": spread(mesh, 3, 2), "b": spread(mesh, 4, dtype=torch.bfloat16), "empty": spread(mesh, 0, 2)}
    state = {**tensors, "scalar": scalar, "n": 1, "plain": torch.ones(2)}
    back = read_state(store(state), "state")
    assert back["n"] == 1
    assert torch.equal(back["plain"], torch.ones(2))
    for name in (*tensors, "scalar"):
        assert not is_sharded(back[name])
        assert back[name].dtype == state[name].dtype
        assert torch.equal(back[name], state[name].full_tensor())


@pytest.mark.parametrize("placement", [Shard(1), Replicate()])
def test_it_comes_back_as_the_present_state_has_it(mesh, store, placement):
    folder = store({"w": spread(mesh, 3, 2)})
    back = read_state(folder, "state", like={"w": spread(mesh, 3, 2, placement=placement) * 0})
    assert isinstance(back["w"], DTensor)
    assert back["w"].placements == (placement,)
    assert torch.equal(back["w"].full_tensor(), torch.arange(6.0).reshape(3, 2))


def test_what_the_present_state_does_not_have_is_spread_over_all_ranks_if_it_is_spread_at_all(mesh, store):
    folder = store({"w": spread(mesh, 3, 2), "momentum": spread(mesh, 3, 2, placement=Shard(1))})
    spread_now = read_state(folder, "state", like={"w": spread(mesh, 3, 2)})
    whole_now = read_state(folder, "state", like={"w": torch.zeros(3, 2)})
    assert spread_now["momentum"].placements == (Shard(1),)
    assert not is_sharded(whole_now["momentum"]) and not is_sharded(whole_now["w"])


def test_a_whole_tensor_is_spread_as_the_present_state_has_it(mesh, tmp_path):
    write_state(tmp_path, "state", {"w": torch.arange(6.0).reshape(3, 2), "other": torch.zeros(2)})
    back = read_state(tmp_path, "state", like={"w": spread(mesh, 3, 2), "other": spread(mesh, 5)})
    assert isinstance(back["w"], DTensor)
    assert torch.equal(back["w"].full_tensor(), torch.arange(6.0).reshape(3, 2))
    assert not is_sharded(back["other"])  # of another shape: the trainer's business


def test_the_files_are_plain_safetensors_and_the_tree_names_them(mesh, store):
    folder = store({"model": {"w": spread(mesh, 3, 2)}})
    assert [file.suffix for file in (folder / "state.shards").iterdir()] == [".safetensors"]
    assert orjson.loads((folder / "state.json").read_bytes())["tree"]["model"]["w"] == {
        "$": "tensor.sharded",
        "key": "/model/w",
        "dtype": "float32",
        "shape": [3, 2],
        "placements": [0],
    }
    for file in (folder / "state.shards").iterdir():
        file.unlink()
    with pytest.raises(CheckpointError, match="the state 'state' cannot be read"):
        read_state(folder, "state")


def test_parts_that_are_not_added_up_are_refused_with_their_place(mesh):
    partial = DTensor.from_local(torch.ones(2), mesh, [Partial()])
    with pytest.raises(UnstorableState, match="have not been added up") as caught:
        encode_state({"model": [partial]})
    assert caught.value.pointer == "/model/0"


def test_only_the_trainers_state_may_hold_one(mesh, tmp_path):
    with pytest.raises(UnstorableState, match="spread over ranks") as caught:
        write_state(tmp_path, "host", {"callback": spread(mesh, 2)})
    assert caught.value.pointer == "/callback"


def test_parts_that_cannot_be_written_are_an_error_of_the_disk(mesh, tmp_path):
    snapshot = ShardBuffer().snapshot({"/w": spread(mesh, 3, 2)})
    (tmp_path / "state.shards").touch()
    with pytest.raises(CheckpointError, match="by rank 0") as caught:
        snapshot.write(tmp_path / "state.shards", None)
    assert caught.value.code == "checkpoint.write"
