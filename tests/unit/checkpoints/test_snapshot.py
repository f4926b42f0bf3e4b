"""A snapshot is the state as it was, whatever training does to it afterwards; other tools can read what it becomes."""

import json
import os
import threading

import numpy as np
import pytest
import safetensors.torch
import torch

from hostcore.checkpoints import snapshot as module
from hostcore.checkpoints.errors import CheckpointError, UnstorableState
from hostcore.checkpoints.snapshot import StateBuffer
from hostcore.checkpoints.state import read_state


@pytest.fixture
def buffer():
    return StateBuffer()


def test_a_snapshot_does_not_see_what_training_does_afterwards(buffer, tmp_path):
    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    moments = {"exp_avg": torch.ones(5), "step": torch.tensor(3.0)}
    array = np.arange(4)
    history = [0.5]
    state = {"weight": weight, "transposed": weight.T, "adam": moments, "array": array, "history": history}
    snapshot = buffer.snapshot(state)
    with torch.no_grad():
        weight.zero_()
        moments["exp_avg"].add_(1)
        moments["step"] += 1
    array[:] = -1
    history.append(0.4)
    state["more"] = 1
    snapshot.write(tmp_path, "state")
    found = read_state(tmp_path, "state")
    plain = {name: getattr(value, "tolist", lambda value=value: value)() for name, value in found.items()}
    assert {name: value.tolist() for name, value in plain.pop("adam").items()} == {"exp_avg": [1] * 5, "step": 3}
    assert plain == {
        "weight": [[0, 1, 2], [3, 4, 5]],
        "transposed": [[0, 3], [1, 4], [2, 5]],
        "array": [0, 1, 2, 3],
        "history": [0.5],
    }


TENSORS = {
    "bytes": torch.arange(7, dtype=torch.uint8),
    "double": torch.tensor(1.5, dtype=torch.float64),
    "half": torch.arange(3, dtype=torch.float16),
    "nothing": torch.zeros(0, 5),
    "strided": torch.arange(12.0).reshape(3, 4)[:, 1::2],
    "complex": torch.tensor([1 + 2j], dtype=torch.complex64).conj(),
    "flags": torch.tensor([True, False, True]),
    "bf16": torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).bfloat16(),
    "ünï/code~": torch.arange(3),
}


def test_the_file_is_laid_out_as_the_format_demands_and_the_safetensors_library_reads_it(buffer, tmp_path):
    """In order, without a gap or an overlap, every tensor at a multiple of its item size, the header padded."""
    buffer.snapshot({**TENSORS, "array": np.arange(5)}).write(tmp_path, "state")
    found = safetensors.torch.load_file(tmp_path / "state.safetensors")
    for key, tensor in TENSORS.items():
        read = found["/" + key.replace("~", "~0").replace("/", "~1")]
        assert (read.dtype, read.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(read, tensor.resolve_conj()), key
    content = (tmp_path / "state.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert (8 + length) % 8 == 0
    header = json.loads(content[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    end = 0
    for key, entry in header.items():
        begin, end_of_last = entry["data_offsets"][0], end
        assert begin == end_of_last, key
        end = entry["data_offsets"][1]
        if key != "/array":
            tensor = TENSORS[key[1:].replace("~1", "/").replace("~0", "~")]
            assert begin % tensor.element_size() == 0, key
    assert end == len(content) - 8 - length


@pytest.mark.parametrize("name", ["float8_e8m0fnu", "float4_e2m1fn_x2", "float8_e4m3fn", "uint64", "complex64"])
def test_dtypes_without_arithmetic_come_back_bit_for_bit(buffer, tmp_path, name):
    if not hasattr(torch, name):
        pytest.skip(f"this torch has no {name}")
    numbers = torch.randint(0, 256, (6, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    tensor = numbers.view(getattr(torch, name))
    buffer.snapshot({"whole": tensor, "turned": tensor.T, "one row": tensor[2]}).write(tmp_path, "state")
    found = read_state(tmp_path, "state")
    for key, expected in {"whole": tensor, "turned": tensor.T, "one row": tensor[2]}.items():
        assert found[key].dtype == expected.dtype
        assert found[key].shape == expected.shape
        bits = {1: torch.uint8, 8: torch.int64}[expected.element_size()]
        assert torch.equal(found[key].view(bits), expected.view(bits))


def test_a_single_item_of_four_bits_is_refused(buffer):
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no float4")
    with pytest.raises(UnstorableState, match="without dimensions"):
        buffer.snapshot([torch.zeros(1, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)[0]])


@pytest.fixture
def allocations(monkeypatch):
    """The sizes of the memory that was asked for."""
    sizes = []
    allocate = module.allocate

    def counted(size, **options):
        sizes.append(size)
        return allocate(size, **options)

    monkeypatch.setattr(module, "allocate", counted)
    return sizes


def test_the_memory_is_used_again(buffer, allocations, tmp_path):
    for number in range(5):
        buffer.snapshot({"a": torch.full((1000,), float(number))}).write(tmp_path, "state")
        buffer.snapshot({"smaller": torch.zeros(10)})
        assert read_state(tmp_path, "state")["a"].tolist() == [number] * 1000
    assert allocations == [4000]


def test_a_state_that_grows_steadily_seldom_needs_new_memory(buffer, allocations, tmp_path):
    for rows in range(1000, 1100):
        buffer.snapshot({"history": np.arange(rows, dtype=np.float64)}).write(tmp_path, "state")
    assert len(read_state(tmp_path, "state")["history"]) == 1099
    assert len(allocations) == 2


def test_a_snapshot_that_made_room_for_the_next_one_cannot_be_written(buffer, tmp_path):
    first = buffer.snapshot({"a": torch.zeros(3)})
    with pytest.raises(UnstorableState):  # which leaves the snapshot before as it is
        buffer.snapshot({"a": torch.ones(3), "b": object()})
    first.write(tmp_path, "zeros")
    assert read_state(tmp_path, "zeros")["a"].tolist() == [0, 0, 0]
    second = buffer.snapshot({"a": torch.ones(3)})
    with pytest.raises(RuntimeError, match="holds a newer one"):
        first.write(tmp_path, "first")
    second.write(tmp_path, "second")
    second.write(tmp_path, "again")
    assert read_state(tmp_path, "again")["a"].tolist() == [1, 1, 1]


def test_the_next_snapshot_waits_until_this_one_is_written(buffer, disk, tmp_path):
    """Else the file would hold some of both."""
    writing, go_on = threading.Event(), threading.Event()

    def slow(count, name, *arguments):
        if name == "write" and len(arguments[1]) == 4000:  # the tensors
            writing.set()
            assert go_on.wait(120)

    first = buffer.snapshot({"a": torch.zeros(1000)})
    with disk(slow):
        writer = threading.Thread(target=first.write, args=(tmp_path, "state"))
        writer.start()
        assert writing.wait(120)
        taker = threading.Thread(target=buffer.snapshot, args=({"a": torch.ones(1000)},))
        taker.start()
        taker.join(0.05)  # long enough to overwrite the memory, if it did not wait
        go_on.set()
        writer.join()
        taker.join()
    assert not read_state(tmp_path, "state")["a"].any()


def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_all_of_them(buffer, monkeypatch, tmp_path):
    """Signals and network file systems may cut a write short."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[:7]))
    files = buffer.snapshot({"a": torch.arange(100), "b": "text" * 10}).write(tmp_path, "state")
    assert read_state(tmp_path, "state")["a"].tolist() == list(range(100))
    assert [(tmp_path / file.path).stat().st_size for file in files] == [file.size for file in files]


def test_memory_that_cannot_be_had_is_one_clear_error(buffer):
    huge = torch.zeros(1).expand(2**54)
    with pytest.raises(CheckpointError, match="no memory for a copy of the state") as caught:
        buffer.snapshot({"a": huge})
    assert caught.value.code == "checkpoint.write"
    assert buffer.snapshot({"a": torch.zeros(1)})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_tensors_on_a_device_come_back_bit_for_bit(buffer, allocations, tmp_path):
    for _ in range(2):
        tensors = {"big": torch.randn(1 << 22, device="cuda"), "turned": torch.randn(300, 200, device="cuda").T}
        tree = {**tensors, "host": torch.randn(5), "array": np.arange(3)}
        expected = {key: tensor.cpu().clone() for key, tensor in tensors.items()}
        snapshot = buffer.snapshot(tree)
        for tensor in tensors.values():
            tensor.zero_()
        snapshot.write(tmp_path, "state")
        found = read_state(tmp_path, "state")
        assert all(torch.equal(found[key], tensor) for key, tensor in expected.items())
    assert len(allocations) == 1
