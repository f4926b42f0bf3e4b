"""A training state on disk comes back equal, bit for bit and type for type, or is refused by name."""

import json
import math
import random
import struct
from collections import Counter, OrderedDict, defaultdict, namedtuple
from itertools import zip_longest
from types import MappingProxyType

import numpy as np
import pytest
import safetensors
import torch

from hostcore.checkpoints.errors import CheckpointError, UnstorableState
from hostcore.checkpoints.snapshot import write_state
from hostcore.checkpoints.state import read_state


def same(a, b):
    """Whether two trees are equal: class by class, bit by bit, and in the order of their keys."""
    if isinstance(a, torch.Tensor):
        if type(b) is not torch.Tensor or a.dtype != b.dtype or a.shape != b.shape:
            return False
        raw = [torch.empty(t.shape, dtype=t.dtype).copy_(t.detach()).reshape(-1).view(torch.uint8) for t in (a, b)]
        return torch.equal(*raw)
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (np.str_, np.bytes_)):
        return a == b
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return (
            len(a) == len(b)
            and all(same(x, y) and same(a[x], b[y]) for x, y in zip(a, b, strict=True))
            and same(getattr(a, "__dict__", None), getattr(b, "__dict__", None))
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    return a == b


@pytest.fixture
def again(tmp_path):
    """Write a tree and read it."""

    def again(tree):
        write_state(tmp_path, "state", tree)
        return read_state(tmp_path, "state")

    return again


SHARED = {"lr": [0.1]}
VALUES = {
    "constants": [None, True, False],
    "integers": [0, -1, 2**63 - 1, -(2**63), 2**63, 2**64, -(10**30)],
    "floats": [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan],
    # The last one is two lone surrogates, not the one character that they would make.
    "texts": ["", "häßlich \0 \n 𝄞", "\ud800", "\ud83d\ude00"],
    "bytes": [b"", bytes(range(256))],
    "sequences": [[], (), [[]], ((),), [1, (2, [3, (4,)])], [SHARED, SHARED, (SHARED,)]],
    "mappings": [
        {},
        OrderedDict(),
        OrderedDict([("b", 1), ("a", 2)]),
        Counter(),
        Counter({3: 2, 7: 1}),
        {"": {"": ""}},
    ],
    "keys that look like ours": [{"$": "tuple", "items": []}, {"$": 1}],
    "keys of all kinds": [
        {"\ud800": 1, 1: "a", "1": "b"},
        {True: 1, "True": 2, None: 3, "None": 4, 2.5: 5, b"k": 6, (1, "x"): 7, (): 8},
        {math.inf: 1, 2**70: 2, (1, (2, b"")): 3, np.int64(1): 1, torch.float32: 2, torch.device("cpu"): 3},
    ],
    "of torch": [torch.float32, torch.bfloat16, torch.device("cpu"), torch.device("cuda:1"), torch.Size([2, 3])],
    "numbers of numpy": [np.float64(0.1), np.float32("nan"), np.float16(1.5), np.bool_(True), np.int8(-3)],
    "large numbers of numpy": [np.uint64(2**64 - 1), np.complex128(1 + 2j)],
    "times of numpy": [np.datetime64("2020-01-02T03:04:05.678"), np.timedelta64(5, "D")],
    "texts of numpy": [np.str_("ab\ud800\0"), np.bytes_(b"ab\0"), np.str_("")],
    "arrays of numbers": [np.array(3.5), np.array([1.5, np.nan], ">f4"), np.array([True, False])],
    "arrays of texts": [np.array(["ab", "c\U0001d11e"]), np.array([b"a", b""])],
    "arrays of times": [np.array(["2020-01-02", "NaT"], "M8[D]"), np.array([1, 2], "m8[ns]")],
    "shapes": [np.zeros((0, 3), np.float32), np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3).T],
    "strides": [np.arange(20)[::-3]],
    "random states": [
        random.Random(5).getstate(),
        np.random.RandomState(5).get_state(),
        np.random.default_rng(5).bit_generator.state,
        np.random.Generator(np.random.Philox(5)).bit_generator.state,
        torch.Generator().manual_seed(5).get_state(),
    ],
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_comes_back_equal_and_of_the_same_type(again, kind):
    for value in VALUES[kind]:
        assert same(value, again(value)), ascii(value)
        assert same({"a": [value, (value,)]}, again({"a": [value, (value,)]})), ascii(value)


def test_an_integer_too_long_to_print_comes_back(again):
    assert again([10**6000, -(10**6000)]) == [10**6000, -(10**6000)]


def test_an_array_that_comes_back_can_be_written_to(again):
    found = again(np.zeros(3))
    found[0] = 1.0
    assert found.tolist() == [1.0, 0.0, 0.0]


DTYPES = [
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
    "float64", "complex64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
]  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_of_every_dtype_come_back_bit_for_bit(again, name):
    dtype = getattr(torch, name)
    numbers = torch.randint(0, 256, (48,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    tensor = (numbers % 2).bool() if dtype == torch.bool else numbers.view(dtype)
    tree = {"flat": tensor, "matrix": tensor.reshape(2, -1), "scalar": tensor[0].clone(), "empty": tensor[:0]}
    assert same(tree, again(tree))


def test_tensors_of_every_layout_come_back_equal(again):
    base = torch.arange(24.0).reshape(2, 3, 4)
    tree = {
        "transposed": base.clone().permute(2, 0, 1),
        "strided": base.clone()[:, ::2, 1::2],
        "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 5),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "scalar": torch.tensor(2.5),
        "no rows": torch.zeros(0, 3),
        "no memory at all": torch.tensor([]),
        "the end of something larger": torch.arange(100)[97:],
        "conjugate": torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex64).conj(),
        "negative": torch.tensor([1 + 2j], dtype=torch.complex64).conj().imag,
        "not a number": torch.tensor([math.nan, math.inf, -0.0]),
    }
    found = again(tree)
    assert same(tree, found)
    assert all(tensor.is_contiguous() for tensor in found.values())


def test_parameters_and_tensors_with_gradients_come_back_as_plain_tensors(again):
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    found = again([torch.nn.Parameter(torch.ones(2)), leaf, leaf * 3, torch.nn.Buffer(torch.zeros(1))])
    assert [type(tensor) for tensor in found] == [torch.Tensor] * 4
    assert not any(tensor.requires_grad for tensor in found)
    assert [tensor.tolist() for tensor in found] == [[1, 1], [1, 2], [3, 6], [0]]


def stored(folder):
    with safetensors.safe_open(folder / "state.safetensors", framework="pt") as file:
        return set(file.keys())


def test_tied_weights_are_stored_once_and_come_back_tied(again, tmp_path):
    weight = torch.nn.Parameter(torch.randn(4, 4))
    found = again({"embedding": weight, "head": {"weight": weight.detach()}, "view": weight.view(4, 4)})
    assert stored(tmp_path) == {"/embedding"}
    found["embedding"][0, 0] = 42.0
    assert found["head"]["weight"][0, 0] == 42.0
    assert found["view"][0, 0] == 42.0


def test_views_that_overlap_without_being_equal_are_stored_apart(again, tmp_path):
    base = torch.arange(12.0)
    tree = {
        "base": base,
        "tail": base[4:],
        "matrix": base.view(3, 4),
        "transposed": base.view(3, 4).T,
        "bits": base.view(torch.int32),
        "head": base[:4],
        "nothing": base[:0],
    }
    found = again(tree)
    assert same(tree, found)
    assert len(stored(tmp_path)) == len(tree)
    found["base"].zero_()
    assert found["tail"].tolist() == [4, 5, 6, 7, 8, 9, 10, 11]


def test_what_comes_back_has_memory_of_its_own(again, tmp_path):
    found = again({"a": torch.arange(4), "b": torch.arange(4)})
    (tmp_path / "state.safetensors").write_bytes(b"")
    assert found["a"].tolist() == [0, 1, 2, 3]
    found["a"] += 1
    assert found["b"].tolist() == [0, 1, 2, 3]
    assert found["a"].untyped_storage().nbytes() == 32


def test_tensors_are_named_by_their_place_so_that_other_tools_can_read_them(again, tmp_path):
    tree = {"model": {"a/b~c": torch.zeros(1)}, 1: torch.ones(1), "1": torch.full((1,), 2.0), "x": [torch.zeros(1)]}
    assert same(tree, again(tree))
    assert stored(tmp_path) == {"/model/a~1b~0c", "/1", "/1#2", "/x/0"}


def test_a_state_without_tensors_is_one_readable_file(again, tmp_path):
    again({"step": 3, "rates": [0.1], "betas": (0.9, 0.999)})
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
    assert json.loads((tmp_path / "state.json").read_text()) == {
        "format": "hostcore.state/1",
        "tree": {"step": 3, "rates": [0.1], "betas": {"$": "tuple", "items": [0.9, 0.999]}},
        "deep": [],
    }


def test_both_files_have_the_permissions_that_the_umask_gives(again, tmp_path):
    again(torch.zeros(2))
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("depth", [63, 64, 65, 128, 20_000])
def test_nesting_of_any_depth_comes_back(again, depth):
    tree = torch.tensor(7)
    wraps = [lambda t: [t], lambda t: (t,), lambda t: {"k": t}, lambda t: {1: t}]
    for number in range(depth):
        tree = wraps[number // 3 % 4](tree)
    found = again(tree)
    for _ in range(depth):
        assert type(found) is type(tree)
        assert len(found) == 1
        (found,) = found.values() if isinstance(found, dict) else found
        (tree,) = tree.values() if isinstance(tree, dict) else tree
    assert found == 7


def cyclic_list():
    tree = [1]
    tree.append({"deeper": (tree,)})
    return tree


class Opaque:
    pass


class Text(str):
    __slots__ = ()


Point = namedtuple("Point", "x y")

UNSTORABLE = {
    "an object": (Opaque(), "of class .*Opaque"),
    "a function": (len, "builtin_function"),
    "a set": ({1}, "builtins.set"),
    "a bytearray": (bytearray(b"x"), "bytearray"),
    "a complex number": (1j, "complex"),
    "a subclass of str": (Text("x"), "Text"),
    "a named tuple": (Point(1, 2), "Point"),
    "a defaultdict": (defaultdict(list), "defaultdict"),
    "another mapping": (MappingProxyType({}), "mappingproxy"),
    "a range": (range(3), "range"),
    "a module": (torch.nn.Linear(1, 1), "Linear"),
    "an array of objects": (np.array([None]), "ndarray"),
    "a structured array": (np.zeros(2, "i4,f4"), "ndarray"),
    "a long double": (np.longdouble(1), "longdouble"),
    "an array of long doubles": (np.zeros(1, np.longdouble), "ndarray"),
    "a masked array": (np.ma.zeros(2), "MaskedArray"),
    "a sparse tensor": (torch.eye(2).to_sparse(), "a sparse or nested tensor"),
    "a meta tensor": (torch.zeros(2, device="meta"), "meta device"),
    "a tensor of a dtype without a place": (torch.zeros(2, dtype=torch.complex128), "a tensor of torch.complex128"),
    "a tensor's subclass": (torch.ones(2).as_subclass(type("Mine", (torch.Tensor,), {})), "a tensor of class .*Mine"),
    "a cycle": (cyclic_list(), "a container that contains itself"),
}


@pytest.mark.parametrize("case", UNSTORABLE)
def test_anything_else_is_refused_with_its_place(tmp_path, case):
    value, what = UNSTORABLE[case]
    tree = {"optimizer": {"state": {0: {"exp/avg": (1, [value])}}}}
    with pytest.raises(UnstorableState, match=what) as caught:
        write_state(tmp_path, "state", tree)
    assert caught.value.pointer.startswith("/optimizer/state/0/exp~1avg/1/0")
    assert caught.value.pointer in caught.value.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_quantized_tensor_is_refused(tmp_path):
    with pytest.raises(UnstorableState, match="a quantized tensor"):
        write_state(tmp_path, "state", torch.quantize_per_tensor(torch.ones(1), 0.1, 0, torch.qint8))


@pytest.mark.parametrize("key", [Opaque(), frozenset(), torch.tensor(1), Text("x"), (1, Point(1, 2))], ids="oftxp")
def test_a_key_that_cannot_come_back_is_refused(tmp_path, key):
    with pytest.raises(UnstorableState) as caught:
        write_state(tmp_path, "state", {"a": {key: 1}})
    assert caught.value.pointer.startswith("/a/")


def test_the_place_of_an_unstorable_value_can_be_printed_whatever_the_keys(tmp_path):
    with pytest.raises(UnstorableState) as caught:
        write_state(tmp_path, "state", {"\ud800": {None: {1.5: object()}}})
    assert caught.value.pointer == "/\\ud800/None/1.5"
    caught.value.message.encode()


def train(steps, module, optimizer, scheduler):
    for step in range(steps):
        optimizer.zero_grad()
        inputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))
        module(inputs).square().mean().backward()
        optimizer.step()
        scheduler.step()


SCHEDULERS = {
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "milestones": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 4]),
    "restarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "sequence": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.LinearLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]
    ),
}
OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.95)),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "groups": lambda p: torch.optim.AdamW([{"params": [q], "lr": 0.1 / n} for n, q in enumerate(p, start=1)]),
}


def a_training(optimizer, scheduler):
    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU())
    module = torch.nn.Sequential(block, torch.nn.ModuleDict({"head": torch.nn.Linear(4, 2)})["head"])
    built = OPTIMIZERS[optimizer](list(module.parameters()))
    return module, built, SCHEDULERS[scheduler](built)


@pytest.mark.parametrize(("optimizer", "scheduler"), [*zip_longest(OPTIMIZERS, SCHEDULERS, fillvalue="adamw")])
def test_a_real_training_state_comes_back_and_continues_bit_for_bit(again, optimizer, scheduler):
    parts = a_training(optimizer, scheduler)
    train(3, *parts)
    tree = {str(n): part.state_dict() for n, part in enumerate(parts)}
    found = again(tree)
    assert same(tree, found)
    resumed = a_training(optimizer, scheduler)
    for n, part in enumerate(resumed):
        part.load_state_dict(found[str(n)])
    train(3, *parts)
    train(3, *resumed)
    assert same([part.state_dict() for part in parts], [part.state_dict() for part in resumed])


KEYS = ["k", "$", "/", "~", "", "1", "\udfff", 1, -(2**65), 0.5, None, b"\xff", (1, "a")]


def random_tree(rng, depth=0):
    """A random value; deeper ones are simpler."""
    if depth < 6 and rng.random() < 0.6:
        items = [random_tree(rng, depth + 1) for _ in range(rng.randrange(5))]
        make = rng.choice([list, tuple, "dict", "odd", "ordered"])
        if make in (list, tuple):
            return make(items)
        keys = [rng.choice(KEYS) for _ in items]
        if make == "dict":
            keys = [f"k{number}" for number in range(len(items))]
        pairs = zip(keys, items, strict=True)
        return OrderedDict(pairs) if make == "ordered" else dict(pairs)
    if rng.random() < 0.3:
        tensor = torch.randn([rng.randrange(4) for _ in range(rng.randrange(4))])
        return tensor.to(rng.choice([torch.float32, torch.bfloat16, torch.int64, torch.bool]))
    return rng.choice([value for values in VALUES.values() for value in values])


def test_random_trees_come_back_equal(again, tmp_path):
    for seed in range(200):
        rng = random.Random(seed)
        shared = torch.randn(6)
        tree = [random_tree(rng), shared, random_tree(rng), shared[rng.randrange(3) :], random_tree(rng), shared]
        found = again(tree)
        assert same(tree, found), f"random_tree(random.Random({seed})) did not come back"
        assert found[1] is found[5], f"sharing was lost with seed {seed}"
        (tmp_path / "state.safetensors").unlink()


def written(**what):
    return json.dumps({"format": "hostcore.state/1", "tree": what, "deep": []})


DAMAGES = [
    ("state.json", "", "[]", "{", '"hostcore.state/1"', '{"format": "hostcore.state/2", "tree": 1, "deep": []}'),
    ("state.json", '{"format": "hostcore.state/1"}', written(**{"$": "pickle"}), written(**{"$": ["tensor"]})),
    ("state.json", written(**{"$": "tuple"}), written(**{"$": "tuple", "items": 3}), written(**{"$": "deep", "at": 0})),
    ("state.json", written(**{"$": "dict", "items": [[[], 1]]}), written(**{"$": "bytes", "base64": "!"})),
    ("state.json", written(**{"$": "int", "value": "x"}), written(**{"$": "tensor", "key": "/other"})),
    ("state.json", written(**{"$": "torch.dtype", "name": "load"}), written(**{"$": "torch.dtype", "name": "nothing"})),
    ("state.json", written(**{"$": "torch.device", "name": "moon"})),
    ("state.json", written(**{"$": "numpy.scalar", "dtype": "O", "base64": ""})),
    ("state.json", written(**{"$": "numpy.scalar", "dtype": "<f8", "base64": "AA=="})),
    ("state.safetensors", "", None),
    ("state.json", None),
]


@pytest.mark.parametrize(("name", "content"), [(name, one) for name, *contents in DAMAGES for one in contents])
def test_a_state_that_is_damaged_or_missing_is_one_clear_error(again, tmp_path, name, content):
    again(torch.zeros(2))
    file = tmp_path / name
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with pytest.raises(CheckpointError, match=r"'state' (cannot be read|is missing)") as caught:
        read_state(tmp_path, "state")
    assert caught.value.file == str(tmp_path / "state.json")
    assert caught.value.hint or content is None


def test_tensors_that_were_cut_off_are_one_clear_error(again, tmp_path):
    again(torch.zeros(200))
    path = tmp_path / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="'state' cannot be read"):
        read_state(tmp_path, "state")


def test_a_folder_that_cannot_be_written_to_is_one_clear_error(tmp_path):
    with pytest.raises(CheckpointError, match="could not be written: No such file") as caught:
        write_state(tmp_path / "missing", "state", {"a": torch.zeros(1)})
    assert caught.value.code == "checkpoint.write"


def test_tensors_go_to_the_device_asked_for(tmp_path):
    write_state(tmp_path, "state", {"a": torch.zeros(2, 3), "b": np.zeros(2)})
    found = read_state(tmp_path, "state", device="meta")
    assert found["a"].device.type == "meta"
    assert found["a"].shape == (2, 3)
    assert type(found["b"]) is np.ndarray
