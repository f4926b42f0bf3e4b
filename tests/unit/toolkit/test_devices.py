"""Batches on their way to a device. The meta device stands for an accelerator where none is needed."""

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from hostcore.toolkit import to_device
from hostcore_hookspecs import StepContext

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass(frozen=True)
class Frozen:
    image: Any
    name: str = "a"


@dataclasses.dataclass
class Derived:
    image: Any
    pixels: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.pixels = self.image.numel()


@attrs.frozen
class Slotted:
    image: Any
    label: Any = attrs.field(default=0, validator=attrs.validators.instance_of((int, torch.Tensor)))


def tensor() -> torch.Tensor:
    return torch.ones(2)


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        (tensor(), lambda moved: moved),
        ([1, tensor()], lambda moved: moved[1]),
        (("a", [tensor()]), lambda moved: moved[1][0]),
        (Pair(1, tensor()), lambda moved: moved.second),
        ({"x": {"y": (tensor(),)}}, lambda moved: moved["x"]["y"][0]),
        (OrderedDict(a=1, x=tensor()), lambda moved: moved["x"]),
        (defaultdict(list, x=tensor()), lambda moved: moved["x"]),
        (UserDict(x=tensor()), lambda moved: moved["x"]),
        (Frozen(tensor()), lambda moved: moved.image),
        (Slotted(tensor()), lambda moved: moved.image),
        (Derived(tensor()), lambda moved: moved.image),
        ([Frozen({"x": Slotted(tensor())})], lambda moved: moved[0].image["x"].image),
    ],
    ids=lambda value: type(value).__name__,
)
def test_tensors_are_found_in_whatever_holds_them_and_the_batch_stays_as_it_was(batch: Any, found: Any) -> None:
    moved = to_device(batch, "meta")
    assert type(moved) is type(batch)
    assert (found(moved).device.type, found(batch).device.type) == ("meta", "cpu")


@pytest.mark.parametrize(
    "batch",
    [
        tensor(),
        [tensor(), 1],
        (tensor(), {"x": tensor()}),
        Pair(tensor(), 2),
        Frozen(tensor()),
        Slotted(tensor()),
        {"x": [tensor()]},
        torch.Size([2, 3]),
        pack_sequence([torch.ones(3), torch.ones(1)]),
        {tensor()},
        np.ones(3),
        "text",
        None,
        torch.Tensor,
        Frozen,
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_what_is_there_already_or_is_no_batch_comes_back_as_the_same_object(batch: Any) -> None:
    assert to_device(batch, "cpu") is batch


def test_only_what_changes_is_copied() -> None:
    there, here = {"x": torch.ones(1, device="meta")}, {"x": tensor()}
    moved = to_device([there, here], "meta")
    assert moved[0] is there
    assert moved[1] is not here


def test_no_constructor_is_called() -> None:
    batch = Derived(tensor())
    batch.pixels = 77
    assert to_device(batch, "meta").pixels == 77


def test_the_rest_of_a_container_stays() -> None:
    moved = to_device(defaultdict(list, x=tensor(), y=1), "meta")
    assert (moved["y"], moved["new"], list(moved)) == (1, [], ["x", "y", "new"])


def test_a_tensor_in_two_places_is_moved_once() -> None:
    shared = tensor()
    moved = to_device({"a": shared, "b": [shared]}, "meta")
    assert moved["a"] is moved["b"][0]


def test_a_context_names_the_device() -> None:
    assert to_device(tensor(), StepContext(device="meta")).device.type == "meta"
    assert to_device(tensor(), StepContext(device=torch.device("meta"))).device.type == "meta"


def test_what_is_on_the_way_to_a_gpu_goes_through_pinned_memory_without_blocking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []
    # Without a GPU neither can be called.
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: calls.append("pin") or self)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *to, **how: calls.append((*map(str, to), how)) or self)
    to_device([tensor()], "cuda:1")
    assert calls == ["pin", ("cuda:1", {"non_blocking": True})]
    calls.clear()
    to_device(torch.ones(1, device="meta"), "cuda:1")
    assert calls == [("cuda:1", {"non_blocking": True})]
    calls.clear()
    to_device(tensor(), "mps")
    assert calls == [("mps", {})]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_values_arrive_on_a_gpu() -> None:
    batch = {"x": torch.arange(1 << 20), "packed": pack_sequence([torch.ones(3), torch.ones(1)])}
    moved = to_device(batch, "cuda")
    assert torch.equal(moved["x"].cpu(), batch["x"])
    assert (moved["packed"].data.is_cuda, moved["packed"].batch_sizes.is_cuda) == (True, False)
    assert to_device(moved, "cuda")["x"] is moved["x"]
