"""Batches on their way to a device. The meta device stands for an accelerator where none is needed.

One seed for all global generators.
"""

import dataclasses
import random
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from hostcore_hookspecs import StepContext
from hostcore_toolkit import seed_everything, to_device

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


def test_what_is_there_already_or_is_no_batch_comes_back_as_the_same_object() -> None:
    packed = pack_sequence([torch.ones(3), torch.ones(1)])
    there = [tensor(), [tensor(), 1], (tensor(), {"x": tensor()}), Pair(tensor(), 2), Frozen(tensor()), packed]
    others = [torch.Size([2, 3]), {tensor()}, np.ones(3), "text", None, torch.Tensor, Frozen]
    for batch in (*there, *others, Slotted(tensor())):
        assert to_device(batch, "cpu") is batch


def test_only_what_changes_is_copied_once_and_without_a_constructor() -> None:
    there, shared = {"x": torch.ones(1, device="meta")}, tensor()
    for device in ("meta", StepContext(device="meta"), StepContext(device=torch.device("meta"))):
        moved = to_device([there, shared, {"b": [shared]}], device)
        assert moved[0] is there
        assert moved[1].device.type == "meta"
        assert moved[2]["b"][0] is moved[1]
    batch = Derived(tensor())
    batch.pixels = 77
    assert to_device(batch, "meta").pixels == 77
    moved = to_device(defaultdict(list, x=tensor(), y=1), "meta")
    assert (moved["y"], moved["new"], list(moved)) == (1, [], ["x", "y", "new"])


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


@pytest.fixture(autouse=True)
def _restore_generators():
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def draw():
    return random.random(), float(np.random.random()), float(torch.rand(()))


@pytest.mark.parametrize(("one", "other"), [(0, 1), (7, 2**16 + 7), (2**31, 2**32 - 1), (np.int64(5), 6)])
def test_a_seed_draws_its_numbers_from_each_generator_and_another_one_others(one, other):
    drawn = []
    for seed in (one, other, one):
        seed_everything(seed)
        drawn.append(draw())
    assert drawn[0] == drawn[2]
    assert all(a != b for a, b in zip(drawn[0], drawn[1], strict=True))


@pytest.mark.parametrize("seed", [-1, 2**32, True, np.True_, 1.5, "1", None])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(ValueError if type(seed) is int else TypeError):
        seed_everything(seed)


def test_the_numbers_are_those_of_the_libraries_themselves():
    seed_everything(42)
    drawn = draw()
    assert drawn[0] == random.Random(42).random()
    assert drawn[1] == np.random.RandomState(42).random()
    assert drawn[2] == float(torch.rand((), generator=torch.Generator().manual_seed(42)))
