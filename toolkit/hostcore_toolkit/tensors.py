"""Columns of a batch as tensors over the same memory, and one number out of whatever holds it."""

from collections.abc import Sequence
from difflib import get_close_matches
from numbers import Real

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
import torch
from torch.utils.dlpack import from_dlpack

from hostcore_hookspecs import InvalidData, StepContext
from hostcore_hookspecs.context import RowSlice
from hostcore_toolkit.devices import to_device

_BRING = "or leave the column out: list the columns that you want in the job's dataset.columns, or in to_tensors()"

#: The ids of the types that DLPack takes as they are.
_PLAIN_NUMBERS = frozenset(
    kind.id
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
    )
)

_TEXT_KINDS = (
    kinds.is_string,
    kinds.is_large_string,
    kinds.is_string_view,
    kinds.is_binary,
    kinds.is_large_binary,
    kinds.is_binary_view,
    kinds.is_fixed_size_binary,
)
#: Batches that are cut together.
_CUT_AT_ONCE = 128
_LIST_KINDS = (kinds.is_list, kinds.is_large_list, kinds.is_list_view, kinds.is_large_list_view)


def to_tensors(
    raw_batch: pa.RecordBatch,
    columns: Sequence[str] | None = None,
    *,
    device: torch.device | str | None = None,
    ctx: StepContext | None = None,
) -> dict[str, torch.Tensor]:
    """Turn numeric columns of a batch into tensors: ``int64`` into ``torch.int64``, and so on, unsigned ones too.

    The tensors lie over the batch's own memory, which lives as long as they do, with three exceptions: booleans, since
    Arrow packs eight into a byte; numbers that the batch has as a dictionary or as runs; and a ``device`` other than
    the CPU. **Do not write into them in place** (``tensor.add_()``): other batches, or a file mapped read-only, may lie
    in the same memory. ``clone()`` first.

    A column of fixed-size lists becomes one dimension more: ``fixed_size_list<float>[3]`` gives ``(rows, 3)``, and one
    of fixed-shape tensors their shape. Lists of a variable size are refused, even should those of a batch have one
    length: the next batch's may not.

    :param raw_batch: What ``prepare_batch`` is given.
    :param columns: The columns to turn; None for all.
    :param device: Where to put the tensors, as :func:`~hostcore_toolkit.to_device` does. None for that of ``ctx``, or
        without one the CPU.
    :param ctx: That of ``prepare_batch``. With it, columns become tensors once for all rows that were read together,
        and a batch has slices of these, which takes a third of the time.
    :return: A tensor of ``raw_batch.num_rows`` rows by column, in the order of ``columns``.
    :raises InvalidData: When a column is not there, holds nulls, or has a type that is not numeric.
    :raises TypeError: When the batch is not a RecordBatch.
    """
    if not isinstance(raw_batch, pa.RecordBatch):
        hint = "; a Table has to_batches()" if isinstance(raw_batch, pa.Table) else ""
        raise TypeError(f"to_tensors() takes a pyarrow.RecordBatch, not {type(raw_batch).__qualname__}{hint}")
    if isinstance(columns, str):
        raise TypeError(f"columns is a list of names; write [{columns!r}]")
    device = ctx.device if device is None and ctx is not None else device
    row_slice = None if ctx is None else ctx.row_slice
    if row_slice is not None and row_slice.batch is raw_batch:
        tensors = _sliced(row_slice, columns)
    else:
        tensors = _tensors(raw_batch, columns)
    return tensors if device is None or getattr(device, "type", device) == "cpu" else to_device(tensors, device)


class _Cutter:
    """Cuts tensors of rows that were read together into those of batches, many at a time: that is cheaper for each."""

    def __init__(self, whole: dict[str, torch.Tensor], num_rows: int, size: int) -> None:
        self._whole, self._num_rows, self._size = whole, num_rows, size
        #: What was cut last: from a row on, so many batches of each column.
        self._start = self._count = 0
        self._cut: dict[str, Sequence[torch.Tensor]] = {}

    def at(self, start: int) -> dict[str, torch.Tensor]:
        """Return the tensors of the batch from a row on."""
        place, between = divmod(start - self._start, self._size)
        if between or not 0 <= place < self._count:
            self._start, self._count = start, min(_CUT_AT_ONCE, (self._num_rows - start) // self._size)
            shape, place = (self._count, self._size), 0
            rows = self._count * self._size
            self._cut = {
                name: one.narrow(0, start, rows).view(*shape, *one.shape[1:]).unbind()
                for name, one in self._whole.items()
            }
        return {name: batches[place] for name, batches in self._cut.items()}


def _sliced(row_slice: RowSlice, columns: Sequence[str] | None) -> dict[str, torch.Tensor]:
    """Return tensors of a batch that are cut from those of the rows around it."""
    key = to_tensors if columns is None else (to_tensors, *columns)
    cutter = row_slice.made.get(key)
    if cutter is None:
        batch, rows = row_slice.batch, row_slice.rows
        assert batch is not None
        assert rows is not None
        try:
            cutter = _Cutter(_tensors(rows, columns), rows.num_rows, batch.num_rows)
        except InvalidData:  # of another batch, such as a null
            return _tensors(batch, columns)
        row_slice.made[key] = cutter
    return cutter.at(row_slice.start)


def _tensors(raw_batch: pa.RecordBatch, columns: Sequence[str] | None) -> dict[str, torch.Tensor]:
    names = raw_batch.schema.names
    if columns is None and len(set(names)) == len(names):
        return {name: _tensor(raw_batch.column(place), name) for place, name in enumerate(names)}
    return {name: _tensor(_column(raw_batch, name), name) for name in (names if columns is None else columns)}


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The one column of a name."""
    indices = batch.schema.get_all_field_indices(name)
    if len(indices) == 1:
        return batch.column(indices[0])
    if indices:
        raise InvalidData(
            f"the batch has {len(indices)} columns named {name!r}",
            code="data.column",
            hint="Give each column of the data a name of its own.",
        )
    near = get_close_matches(name, batch.schema.names, n=1)
    raise InvalidData(
        f"the batch has no column {name!r}; it has {', '.join(map(repr, batch.schema.names)) or 'none'}",
        code="data.column",
        hint=f"Did you mean {near[0]!r}?"
        if near
        else f"Name one of these in prepare_batch, or add {name!r} to the job's dataset.columns.",
    )


def _tensor(column: pa.Array, name: str) -> torch.Tensor:
    if column.type.id in _PLAIN_NUMBERS:  # most columns of most batches; all that follows takes as long again
        _refuse_nulls(column, name)
        return from_dlpack(column)
    if isinstance(column, pa.FixedShapeTensorArray):
        return _fixed_shape_tensor(column, name)
    values = column.storage if isinstance(column, pa.ExtensionArray) else column
    shape = [len(column)]
    while kinds.is_fixed_size_list(values.type):
        _refuse_nulls(values, name)
        shape.append(values.type.list_size)
        values = values.flatten()  # of the slice alone, unlike .values
    if not _is_numeric(values.type):
        values = _decoded(values, column.type, name)
    _refuse_nulls(values, name)
    if kinds.is_boolean(values.type):
        tensor = from_dlpack(values.cast(pa.uint8())).view(torch.bool)
    else:
        # By DLPack and not by NumPy, whose arrays over Arrow's memory are read-only, of which torch warns.
        tensor = from_dlpack(values)
        if isinstance(column, pa.Bool8Array):
            tensor = tensor.view(torch.bool)
    return tensor if len(shape) == 1 else tensor.view(shape)


def _decoded(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """The numbers of a dictionary or of runs.

    :param kind: The type of the whole column.
    :raises InvalidData: When there are no numbers in the column.
    """
    if kinds.is_dictionary(values.type) and _is_numeric(values.type.value_type):
        return values.dictionary_decode()
    if kinds.is_run_end_encoded(values.type) and _is_numeric(values.type.value_type):
        return pc.run_end_decode(values)
    raise InvalidData(
        f"column {name!r} is of type {kind}, which cannot become a tensor",
        code="data.type",
        hint=f"{_remedy(values.type)}, {_BRING}.",
    )


def _fixed_shape_tensor(column: pa.FixedShapeTensorArray, name: str) -> torch.Tensor:
    """A tensor of a row's shape, with the rows before it."""
    kind = column.type
    tensor = _tensor(column.storage, name).view(len(column), *kind.shape)
    if kind.permutation is None:
        return tensor
    # The shape is the one in memory, and the permutation has the order of its dimensions.
    return tensor.permute(0, *(dimension + 1 for dimension in kind.permutation))


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind))


def _refuse_nulls(values: pa.Array, name: str) -> None:
    if values.null_count:
        raise InvalidData(
            f"column {name!r} has {values.null_count} null(s) in a batch, and a tensor has no nulls",
            code="data.null",
            hint="Fill them or leave their rows out when you write the data, or handle them in prepare_batch, as by "
            "pyarrow.compute.fill_null().",
        )


def _remedy(kind: pa.DataType) -> str:
    """Return the remedy for a type, as the beginning of a sentence."""
    if kinds.is_temporal(kind):
        return "Turn it into a number (a timestamp's .cast('int64'), an hour, a day of the week) in prepare_batch"
    if kinds.is_decimal(kind):
        return "Cast it to float64, in the data or in prepare_batch"
    if kinds.is_dictionary(kind):
        return "Use its .indices in prepare_batch, if the same value has the same index in all of the data"
    if any(is_kind(kind) for is_kind in _TEXT_KINDS):
        return "Encode it as numbers (token ids, a category's index, a decoded image) in prepare_batch"
    if any(is_kind(kind) for is_kind in _LIST_KINDS):
        return "Write it as a fixed-size list if all rows have one length; otherwise pad it in prepare_batch"
    if kinds.is_struct(kind):
        return "Take its fields one by one in prepare_batch (.field('x')), or write them as columns of their own"
    if kinds.is_null(kind):
        return "It has no values at all: write it with a type"
    return "Turn it into numbers in prepare_batch"


def to_float_scalar(value: object) -> float:
    """The value of one number as a Python float. A non-finite one passes through.

    Reading a tensor of an accelerator waits for it; metrics in a ``StepResult`` may stay tensors instead.

    :param value: A number, a NumPy number, or a tensor or NumPy array with exactly one element.
    :raises TypeError: When it is something else. A boolean and a complex number are something else.
    :raises ValueError: When it has no element, or several.
    """
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise ValueError(
                f"expected one number, got a tensor of shape {tuple(value.shape)}; reduce it, as by .mean()"
            )
        value = value.item()
    elif isinstance(value, np.ndarray):
        if value.size != 1:
            raise ValueError(f"expected one number, got an array of shape {value.shape}; reduce it, as by .mean()")
        value = value.reshape(())[()]
    if type(value) is float:  # the usual case: asking whether it is Real costs more than all the rest
        return value
    if isinstance(value, bool) or not isinstance(value, Real):  # NumPy's numbers are Real, its booleans are not
        raise TypeError(f"expected a number, got {value!r} of class {type(value).__qualname__}")
    return float(value)
