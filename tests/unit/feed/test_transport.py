"""Values between processes: what arrives equals what was sent."""

import pickle
import socket
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from hostcore.worker.feed.transport import ValueStream, decode, encode

LARGE = 300_000


def there_and_back(value: Any) -> Any:
    """Send a value through a socket, which holds less than a large one."""
    ours, theirs = (ValueStream(end) for end in socket.socketpair())
    sender = threading.Thread(target=ours.send, args=(encode(value),))
    sender.start()
    received = decode(theirs.receive())
    sender.join()
    ours.close()
    with pytest.raises(EOFError):
        theirs.receive()
    theirs.close()
    return received


ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.random.default_rng(0).random((40, 50, 60, 3)).transpose(0, 3, 1, 2),
    np.asfortranarray(np.arange(LARGE).reshape(600, -1)),
    np.array(["text", None], dtype=object),
    np.array(3.5),
]
TENSORS = [
    torch.arange(6).reshape(2, 3),
    torch.rand(40, 50, 60, 3).permute(0, 3, 1, 2),
    torch.rand(LARGE).bfloat16().reshape(500, -1).t(),
    torch.tensor([True, False]),
    torch.tensor(2.5, dtype=torch.float16),
    torch.empty(0, 3),
]
#: Those that do not keep their layout.
OTHERS = [
    torch.rand(4, 6)[:, ::2],
    torch.rand(3, 1).expand(3, 5),
    torch.randn(3, dtype=torch.complex64).conj(),
    torch.ones(3, requires_grad=True),
    torch.eye(3).to_sparse(),
    torch.nn.Parameter(torch.ones(2)),
]


def test_arrays_and_tensors_keep_values_type_and_layout() -> None:
    for array in ARRAYS:
        received = there_and_back({"x": array})["x"]
        np.testing.assert_array_equal(received, array)
        assert (received.dtype, received.strides) == (array.dtype, array.strides)
        assert received.flags.writeable
    for tensor in TENSORS:
        received = there_and_back([tensor])[0]
        assert torch.equal(received, tensor)
        assert (received.dtype, received.stride()) == (tensor.dtype, tensor.stride())
        assert received.data_ptr() % 16 == 0
        received.add_(True)  # may be written to


def test_other_tensors_arrive_equal() -> None:
    for tensor in OTHERS:
        received = there_and_back(tensor)
        assert torch.equal(received.to_dense(), tensor.to_dense())
        assert (type(received), received.requires_grad) == (type(tensor), tensor.requires_grad)


def test_a_slice_of_rows_travels_without_the_rows_around_it() -> None:
    whole = pa.record_batch(
        {"n": range(LARGE), "word": pa.array([str(n % 7) for n in range(LARGE)]).dictionary_encode()}
    )
    part = whole.slice(LARGE // 2, 3)
    assert len(encode(part).data) < 5000
    assert there_and_back(part).equals(part)
    assert there_and_back(whole).equals(whole)
    table = pa.Table.from_batches([part, part])
    assert there_and_back((1, {"table": table}))[1]["table"].equals(table)


def test_a_line_that_breaks_off_in_the_middle_of_a_value_has_ended() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(pickle.dumps([1, 2, 3])[:-2])
    ours.close()
    line = ValueStream(theirs)
    with pytest.raises(EOFError):
        line.receive()
    line.close()


def test_large_buffers_are_not_copied_into_the_pickle_and_what_cannot_be_pickled_is_refused() -> None:
    encoded = encode([np.zeros(LARGE), torch.zeros(LARGE)])
    assert len(encoded.data) < 5000
    assert [buffer.raw().nbytes for buffer in encoded.buffers] == [8 * LARGE, 4 * LARGE]
    with pytest.raises((TypeError, pickle.PicklingError)):
        encode([np.zeros(LARGE), threading.Lock()])
