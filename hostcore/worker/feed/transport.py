"""Values on their way between two processes of one run: pickles of protocol 5 over a socket.

The stream of pickles is the whole protocol. Large buffers are not copied into it, but written to the socket and read
from it as they are (measured: 2.7 GB/s; ``torch.multiprocessing`` through shared memory 1.1, and the 64 MB of that in a
container are soon full). What arrives equals what was sent, bit for bit: types, shapes, and the layout in memory of an
array or tensor without gaps, since kernels may round differently for another layout.

Only ever between a worker and the processes that it started itself: reading a pickle runs code.
"""

import io
import pickle
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

#: Bytes from which on a buffer travels by itself: what pickle writes without copying it into a frame.
_LARGE: Final = 1 << 16


@attrs.frozen
class EncodedValue:
    """A value ready to be sent."""

    data: bytes
    buffers: list[pickle.PickleBuffer]


def encode(value: Any) -> EncodedValue:
    """Pickle a value.

    :raises Exception: Whatever pickle or the value's own methods raise; nothing has been sent then.
    """
    buffers: list[pickle.PickleBuffer] = []

    def keep_inside(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < _LARGE:
            return True
        buffers.append(buffer)
        return False

    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=keep_inside).dump(value)
    return EncodedValue(stream.getvalue(), buffers)


def decode(encoded: EncodedValue) -> Any:
    """The reverse of :func:`encode`."""
    return pickle.loads(encoded.data, buffers=encoded.buffers)  # noqa: S301 - of a process of this run


class ValueStream:
    """One end of a stream of values.

    :param connection: A connected stream socket, which the line now owns.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._stream = connection.makefile("rwb")

    def fileno(self) -> int:
        """The socket's file descriptor."""
        return self._socket.fileno()

    def send(self, value: Any) -> None:
        """Send plain values, or :class:`EncodedValue` ones.

        :raises OSError: When the other side is gone.
        """
        pickle.dump(value, self._stream, protocol=5)
        self._stream.flush()

    def receive(self) -> Any:
        """The next value.

        :raises EOFError: When the other side has closed the line.
        :raises OSError: When it is gone.
        """
        try:
            return pickle.load(self._stream)  # noqa: S301 - of a process of this run
        except pickle.UnpicklingError as error:  # "pickle data was truncated": it died in the middle
            raise EOFError(str(error)) from None

    def hang_up(self) -> None:
        """End the line for both sides, also for a thread that is waiting on it."""
        with suppress(OSError):  # it has ended
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end."""
        with suppress(OSError):  # what could not be sent any more
            self._stream.close()
        self._socket.close()


class _Pickler(pickle.Pickler):
    """Knows better than their own methods how these types travel."""

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is np.ndarray:
            return _reduce_array(value)
        if kind in (pa.RecordBatch, pa.Table):
            return _reduce_rows(value)
        torch = sys.modules.get("torch")  # who has a tensor has imported it
        if torch is not None and kind is torch.Tensor:
            return _reduce_tensor(value, torch)
        return NotImplemented


def _reduce_rows(rows: "pa.RecordBatch | pa.Table") -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """As Arrow IPC. pyarrow's own pickle of a slice has all the rows that it was cut from."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    read = _read_batch if isinstance(rows, pa.RecordBatch) else _read_table
    return read, (pickle.PickleBuffer(sink.getvalue()),)


def _read_batch(buffer: Any) -> pa.RecordBatch:
    return pa.ipc.open_stream(pa.py_buffer(buffer)).read_next_batch()


def _read_table(buffer: Any) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(buffer)).read_all()


def _reduce_array(array: "np.ndarray[Any, Any]") -> Any:
    """NumPy before 2.3 sends arrays with permuted axes, such as images with channels last, as a copy in C order."""
    if array.flags.forc or array.dtype.hasobject:
        return NotImplemented
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    dense = array.transpose(order)
    if not dense.flags.c_contiguous:
        return NotImplemented
    return np.transpose, (dense, tuple(np.argsort(order).tolist()))


def _reduce_tensor(tensor: Any, torch: Any) -> Any:
    """As bytes: 1 ms for 20 MB, 15 with torch's own pickle."""
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_quantized
    if not plain or tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
        return NotImplemented
    order = sorted(range(tensor.ndim), key=lambda axis: -tensor.stride(axis))
    dense = tensor.permute(order)
    if not dense.is_contiguous():
        order = list(range(tensor.ndim))
        dense = tensor.contiguous()
    content = dense.reshape(-1).view(torch.uint8).numpy()
    return _read_tensor, (pickle.PickleBuffer(content), tensor.dtype, tuple(tensor.shape), tuple(order))


def _read_tensor(buffer: Any, dtype: Any, shape: tuple[int, ...], order: tuple[int, ...]) -> Any:
    """A tensor in memory of torch's own, which is aligned as torch's kernels like it."""
    import torch

    tensor = torch.empty_permuted(shape, order, dtype=dtype)
    if tensor.numel():
        content = torch.frombuffer(buffer, dtype=torch.uint8)
        tensor.permute(order).reshape(-1).view(torch.uint8).copy_(content)
    return tensor
