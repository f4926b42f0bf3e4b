"""Columns as tensors: over the same memory, safely, or with an error that says what to do. Reading one number."""

import gc
import math
import subprocess
import sys
import warnings
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import torch
from pretended_cuda import CopiesToCuda

from hostcore_hookspecs import InvalidData, StepContext
from hostcore_hookspecs.context import RowSlice
from hostcore_toolkit import to_float_scalar, to_tensors

NUMERIC = [
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
]


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Of what other tests of this process have left open, and the collector finds now.
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("name", NUMERIC)
def test_numeric_columns_and_their_slices_lie_over_the_memory_of_the_batch(name):
    column = pa.array(range(100), pa.int8()).cast(getattr(pa, name)())
    whole, part = to_tensors(batch(x=column))["x"], to_tensors(batch(x=column).slice(37, 3))["x"]
    assert whole.dtype == part.dtype == getattr(torch, name)
    assert (whole.tolist(), part.tolist()) == ([*range(100)], [37, 38, 39])
    assert whole.data_ptr() == column.buffers()[1].address == part.data_ptr() - 37 * whole.dtype.itemsize


def test_extreme_values_survive():
    found = to_tensors(
        batch(
            unsigned=pa.array([0, 2**64 - 1], pa.uint64()),
            signed=pa.array([-(2**63), 2**63 - 1], pa.int64()),
            floating=pa.array([float("-inf"), 5e-324], pa.float64()),
        )
    )
    assert found["unsigned"].tolist() == [0, 2**64 - 1]
    assert found["signed"].tolist() == [-(2**63), 2**63 - 1]
    assert found["floating"].tolist() == [float("-inf"), 5e-324]


def test_booleans_are_unpacked_wherever_a_slice_begins():
    values = [n % 3 == 0 for n in range(50)]
    for start in range(20):
        tensor = to_tensors(batch(x=pa.array(values)).slice(start, 17))["x"]
        assert tensor.dtype == torch.bool
        assert tensor.tolist() == values[start : start + 17]


def test_only_the_columns_asked_for_in_their_order_and_on_the_device_asked_for():
    found = to_tensors(batch(a=[1], text=["x"], b=[2.5]), ["b", "a"], device="meta")
    assert [(name, tensor.device.type) for name, tensor in found.items()] == [("b", "meta"), ("a", "meta")]


def test_an_empty_batch_gives_empty_tensors():
    schema = pa.schema([("x", pa.float32()), ("flag", pa.bool_()), ("v", pa.list_(pa.int16(), 3))])
    found = to_tensors(pa.RecordBatch.from_pylist([], schema=schema))
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == {"x": (0,), "flag": (0,), "v": (0, 3)}


@pytest.mark.parametrize("columns", [None, ["lists", "y"]])
def test_with_a_context_a_batch_has_slices_of_the_tensors_of_all_rows(columns):
    shaped = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int32(), (2, 3), permutation=[1, 0]),
        pa.FixedSizeListArray.from_arrays(pa.array(range(6_000), pa.int32()), 6),
    )
    rows = batch(
        y=pa.array(np.arange(1_000.0)),
        lists=pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2_000.0)), 2),
        is_late=pa.array([row % 3 == 0 for row in range(1_000)]),
        shaped=shaped,
    )
    ctx = StepContext(row_slice=RowSlice())
    ctx.row_slice.begin(rows)
    memory = to_tensors(rows)["y"].data_ptr()
    for start in [*range(5, 990, 4), 983, 980, 400, 3]:  # also between those that were cut together
        ctx.row_slice.batch, ctx.row_slice.start = rows.slice(start, 4), start
        plain, sliced = to_tensors(ctx.row_slice.batch, columns), to_tensors(ctx.row_slice.batch, columns, ctx=ctx)
        assert list(plain) == list(sliced)
        assert all(torch.equal(plain[name], sliced[name]) for name in plain)
        assert sliced["y"].data_ptr() == memory + 8 * start
    other = batch(y=[1.0, 2.0])
    assert to_tensors(other, ctx=ctx)["y"].tolist() == [1.0, 2.0], "not the batch that the context knows"


def test_with_a_context_a_null_of_another_batch_is_no_error():
    rows = batch(y=[1.0, 2.0, None, 4.0])
    ctx = StepContext(row_slice=RowSlice(batch=rows.slice(0, 2), rows=rows))
    assert to_tensors(ctx.row_slice.batch, ctx=ctx)["y"].tolist() == [1.0, 2.0]
    ctx.row_slice.batch, ctx.row_slice.start = rows.slice(2, 2), 2
    with pytest.raises(InvalidData, match="'y' has 1 null"):
        to_tensors(ctx.row_slice.batch, ctx=ctx)


def test_fixed_size_lists_become_a_second_dimension_over_the_same_memory():
    values = pa.array(range(30), pa.float32())
    column = pa.FixedSizeListArray.from_arrays(values, 3)
    tensor = to_tensors(batch(v=column).slice(4, 2))["v"]
    assert tensor.tolist() == [[12, 13, 14], [15, 16, 17]]
    assert tensor.data_ptr() == values.buffers()[1].address + 12 * 4
    rows = [[[n, n + 1], [n + 2, n + 3], [n + 4, n + 5]] for n in range(7)]
    deeper = pa.array(rows, pa.list_(pa.list_(pa.int64(), 2), 3))
    assert to_tensors(batch(v=deeper).slice(2, 4))["v"].tolist() == rows[2:6]
    flags = to_tensors(batch(v=pa.array([[True, False], [False, False]], pa.list_(pa.bool_(), 2))).slice(1))["v"]
    assert (flags.dtype, flags.tolist()) == (torch.bool, [[False, False]])


def test_fixed_shape_tensors_have_their_shape_over_the_same_memory():
    values = pa.array(range(24), pa.float32())
    kind = pa.fixed_shape_tensor(pa.float32(), [2, 3])
    column = pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(values, 6))
    tensor = to_tensors(batch(v=column).slice(1))["v"]
    assert tensor.shape == (3, 2, 3)
    assert tensor[0].tolist() == [[6, 7, 8], [9, 10, 11]]
    assert tensor.data_ptr() == values.buffers()[1].address + 6 * 4
    turned = pa.fixed_shape_tensor(pa.int64(), [2, 3], permutation=[1, 0])
    storage = pa.FixedSizeListArray.from_arrays(pa.array(range(12), pa.int64()), 6)
    column = pa.ExtensionArray.from_storage(turned, storage)
    assert to_tensors(batch(v=column))["v"].tolist() == column.to_numpy_ndarray().tolist()


def test_booleans_of_a_byte_each_lie_over_the_same_memory():
    storage = pa.array([1, 0, 1], pa.int8())
    tensor = to_tensors(batch(x=pa.ExtensionArray.from_storage(pa.bool8(), storage)))["x"]
    assert tensor.dtype == torch.bool
    assert tensor.tolist() == [True, False, True]
    assert tensor.data_ptr() == storage.buffers()[1].address


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5, 2.5, 2.5]).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array([1.5, 2.5])),
    ],
    ids=["dictionary", "runs"],
)
def test_numbers_in_a_dictionary_or_in_runs_are_decoded(column):
    assert to_tensors(batch(x=column))["x"].tolist() == [1.5, 2.5, 2.5]
    assert to_tensors(batch(x=column).slice(1))["x"].tolist() == [2.5, 2.5]


def test_the_memory_lives_as_long_as_the_tensor():
    pool = pa.default_memory_pool()
    gc.collect()
    before = pool.bytes_allocated()
    column = pa.array([7] * 1_000, pa.int64())
    big = pa.concat_arrays([column] * 1_000)
    raw = batch(x=big)
    tensor = to_tensors(raw)["x"][5:]  # a part of a tensor keeps the memory as well
    del column, big, raw
    gc.collect()
    assert pool.bytes_allocated() - before >= 8_000_000
    assert bool((tensor == 7).all())
    del tensor
    gc.collect()
    assert pool.bytes_allocated() - before < 1_000_000


def test_nulls_are_refused_with_the_column_and_their_number():
    with pytest.raises(InvalidData, match=r"'x' has 2 null\(s\)") as caught:
        to_tensors(batch(ok=[1, 2, 3], x=[1.0, None, None]))
    assert caught.value.code == "data.null"
    assert "fill_null" in caught.value.hint
    assert to_tensors(batch(x=[None, 1.5, 2.5, None]).slice(1, 2))["x"].tolist() == [1.5, 2.5]
    for rows in ([[1, 2], None], [[1, 2], [None, 4]]):
        with pytest.raises(InvalidData, match="1 null"):
            to_tensors(batch(v=pa.array(rows, pa.list_(pa.int32(), 2))))


@pytest.mark.parametrize(
    ("column", "advice"),
    [
        (pa.array(["a"]), "Encode it as numbers"),
        (pa.array([b"a"]), "Encode it as numbers"),
        (pa.array([datetime(2020, 1, 1)]), "timestamp"),
        (pa.array([1], pa.date32()), "Turn it into a number"),
        (pa.array([Decimal("1.5")]), "float64"),
        (pa.array(["a"]).dictionary_encode(), ".indices"),
        (pa.array([[1, 2], [3, 4]]), "Write it as a fixed-size list if all rows have one length; otherwise pad it"),
        (pa.array(["a"], pa.string_view()), "Encode it as numbers"),
        (pa.array([b"ab"], pa.binary(2)), "Encode it as numbers"),
        (pa.array([[1, 2]], pa.list_view(pa.int64())), "fixed-size list"),
        (pa.array([{"a": 1}]), "Take its fields"),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "Turn it into numbers"),
        (pa.array([None], pa.null()), "write it with a type"),
        (pa.array([["a", "b"]], pa.list_(pa.string(), 2)), "Encode it as numbers"),
        (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"x" * 16], pa.binary(16))), "Encode it as numbers"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_type_that_cannot_become_a_tensor_is_refused_with_what_to_do(column, advice):
    with pytest.raises(InvalidData) as caught:
        to_tensors(batch(x=column))
    assert caught.value.code == "data.type"
    assert "'x'" in caught.value.message
    assert str(column.type) in caught.value.message
    assert advice in caught.value.hint
    assert "dataset.columns" in caught.value.hint


def test_an_unknown_column_is_refused_with_the_nearest():
    with pytest.raises(InvalidData, match="no column 'arival_delay'") as caught:
        to_tensors(batch(arrival_delay=[1], hour=[2]), ["arival_delay"])
    assert caught.value.hint == "Did you mean 'arrival_delay'?"
    with pytest.raises(InvalidData, match="no column 'z'; it has 'hour'") as caught:
        to_tensors(batch(hour=[2]), ["z"])
    assert caught.value.hint == "Name one of these in prepare_batch, or add 'z' to the job's dataset.columns."


def test_what_is_not_a_batch_a_list_of_columns_or_one_column_of_a_name_is_refused():
    with pytest.raises(TypeError, match=r"not Table; a Table has to_batches\(\)"):
        to_tensors(pa.table({"x": [1]}))
    with pytest.raises(TypeError, match="not NoneType"):
        to_tensors(None)
    with pytest.raises(TypeError, match=r"\['x'\]"):
        to_tensors(batch(x=[1]), "x")
    doubled = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(InvalidData, match="2 columns named 'x'"):
        to_tensors(doubled)


def test_columns_of_a_memory_mapped_file_are_not_copied(tmp_path):
    path = tmp_path / "data.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("x", pa.int64())])) as writer:
        writer.write_batch(batch(x=pa.array(range(1000))))
    raw = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
    address = raw.column(0).buffers()[1].address
    tensor = to_tensors(raw)["x"]
    del raw
    gc.collect()
    assert tensor.data_ptr() == address
    assert int(tensor.sum()) == 499500


def test_no_warning_reaches_the_user_of_a_fresh_process():
    code = """if True:
        import pyarrow as pa
        from hostcore_toolkit import to_float_scalar, to_tensors
        lists = pa.array([[1, 2]], pa.list_(pa.int8(), 2))
        to_tensors(pa.RecordBatch.from_pydict({"x": [1.0], "y": [True], "z": lists}))
    """
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True)
    assert "tensors.py" not in done.stderr
    assert "dlpack" not in done.stderr.lower()
    assert "writable" not in done.stderr


def test_one_number_in_any_wrapping_is_a_float():
    plain = [2, 2.0, np.float32(2), np.float64(2), np.int8(2), np.uint64(2), np.array(2.0), np.array([[2]])]
    tensors = [torch.tensor(2), torch.tensor([[2.0]]), torch.tensor(2.0, dtype=torch.bfloat16)]
    learned = [torch.tensor(2.0, requires_grad=True), torch.nn.Parameter(torch.tensor([2.0]))]
    for value in (*plain, *tensors, *learned):
        found = to_float_scalar(value)
        assert (type(found), found) == (float, 2.0), repr(value)
    assert math.isnan(to_float_scalar(torch.tensor(float("nan"))))
    assert to_float_scalar(np.float32("inf")) == math.inf


@pytest.mark.parametrize("value", [torch.zeros(2), torch.zeros(0), np.zeros((2, 2)), np.zeros(0)], ids=repr)
def test_several_numbers_or_none_are_refused_with_the_shape(value):
    with pytest.raises(ValueError, match="shape") as caught:
        to_float_scalar(value)
    assert str(tuple(value.shape)) in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [True, np.bool_(True), torch.tensor(True), "2.0", None, 2j, torch.tensor(2j), [2.0], np.array(["2"])],
    ids=repr,
)
def test_what_is_not_a_number_is_refused(value):
    with pytest.raises(TypeError, match="expected a number"):
        to_float_scalar(value)


def test_columns_for_a_gpu_are_copied_from_pinned_memory_without_blocking() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1.0, 2.0], "y": [3, 4]})
    with CopiesToCuda() as copies:
        to_tensors(batch, device="cuda")
    assert copies.copies == 2
