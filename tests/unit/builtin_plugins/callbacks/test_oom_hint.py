import gc
import re
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
import torch

from hostcore_builtin_plugins.callbacks.oom_hint import (
    OomHint,
    describe_batch,
    describe_memory,
    in_words,
    is_out_of_memory,
)
from hostcore_hookspecs import HostcoreError

Course = Callable[..., Any]


def cpu_allocator() -> None:
    torch.empty(2**60, dtype=torch.uint8)


def numpy_allocator() -> None:
    np.empty(2**60, np.uint8)


def pyarrow_allocator() -> None:
    pa.allocate_buffer(2**60)


def cuda_allocator() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. expandable_segments:True")


def wrapped() -> None:
    try:
        cuda_allocator()
    except RuntimeError as error:
        raise ValueError("the step failed") from error


def raised_by(action: Callable[[], None]) -> BaseException:
    with pytest.raises(Exception) as caught:
        action()
    return caught.value


OUT_OF_MEMORY = [cpu_allocator, numpy_allocator, pyarrow_allocator, cuda_allocator, wrapped]


@pytest.mark.parametrize("action", OUT_OF_MEMORY)
def test_whatever_ran_out_of_memory_gets_the_batch_the_memory_and_what_to_change(course: Course, action: Any) -> None:
    run = course(dataset={}, batch_size=33, global_batch_size=66)
    run.to_step(7)
    callback = OomHint()
    callback.on_train_begin()
    callback.on_batch_begin(batch={"x": torch.zeros(32, 16)})
    error = raised_by(action)
    callback.on_exception(error=error, run_state=run.run_state, ctx=run.ctx)
    shown = "".join(traceback.format_exception(error))
    assert "memory ran out in step 8, with the batch x: float32[32, 16] on cpu (2.0 KiB)" in shown
    assert "the process takes" in shown
    assert 'set "batch_size" of the dataset to 11 and "global_batch_size" to 66' in error.hint


@pytest.mark.parametrize(
    "error", [ValueError("out of memory"), KeyError("x"), RuntimeError("shapes differ"), KeyboardInterrupt()]
)
def test_other_errors_are_left_alone(course: Course, error: BaseException) -> None:
    run = course()
    OomHint().on_exception(error=error, run_state=run.run_state, ctx=run.ctx)
    assert not hasattr(error, "__notes__")
    assert not hasattr(error, "hint")


def test_an_error_raised_while_another_was_cleaned_up_after_is_not_blamed_on_it() -> None:
    error = ValueError("a bad batch")
    error.__context__, error.__suppress_context__ = MemoryError(), True  # raise … from None
    assert not is_out_of_memory(error)


def test_a_hint_that_the_error_has_is_kept(course: Course) -> None:
    run = course()
    error = HostcoreError("the cache is full", hint="empty it")
    error.__cause__ = MemoryError()
    OomHint().on_exception(error=error, run_state=run.run_state, ctx=run.ctx)
    assert error.hint == "empty it"


@pytest.mark.parametrize(
    ("calls", "where"),
    [
        ([], "memory ran out before the first step"),
        (["on_train_begin"], "memory ran out between two steps"),
        (["on_train_begin", "on_validation_begin"], "memory ran out in the validation"),
        (["on_train_begin", "on_validation_begin", "on_validation_end"], "memory ran out between two steps"),
        (["on_train_begin", "on_test_begin"], "memory ran out in the test"),
    ],
)
def test_the_note_says_what_the_run_was_doing(course: Course, calls: Sequence[str], where: str) -> None:
    run, callback, error = course(), OomHint(), MemoryError()
    for call in calls:
        getattr(callback, call)()
    callback.on_exception(error=error, run_state=run.run_state, ctx=run.ctx)
    assert error.__notes__[0].startswith(where)


def test_the_note_names_the_check_of_the_validation_before_the_first_step(course: Course) -> None:
    run, callback, error = course(), OomHint(), MemoryError()
    callback.on_train_begin()
    run.ctx.sanity_checking = True
    callback.on_exception(error=error, run_state=run.run_state, ctx=run.ctx)
    assert error.__notes__[0].startswith("memory ran out in the check of the validation")


@pytest.mark.parametrize(
    ("device", "action", "told", "has", "lacks"),
    [
        ("cuda:0", cuda_allocator, "cuda:0", "bf16", "window_bytes"),
        ("cuda:0", cpu_allocator, "cpu", "window_bytes", "bf16"),
        ("cuda:0", numpy_allocator, "cpu", "window_bytes", "bf16"),
        ("cpu", cpu_allocator, "cpu", "window_bytes", "bf16"),
    ],
)
def test_the_advice_is_about_the_memory_that_ran_out(
    course: Course, monkeypatch: pytest.MonkeyPatch, device: str, action: Any, told: str, has: str, lacks: str
) -> None:
    monkeypatch.setattr("hostcore_builtin_plugins.callbacks.oom_hint.describe_memory", lambda device: f"of {device}")
    run, error = course(dataset={}, batch_size=1), raised_by(action)
    run.ctx.device = device
    OomHint().on_exception(error=error, run_state=run.run_state, ctx=run.ctx)
    assert error.__notes__[0].endswith(f"of {told}")
    assert has in error.hint and "torch.utils.checkpoint" in error.hint
    assert lacks not in error.hint and "batch_size" not in error.hint


def test_no_batch_is_held_between_two_steps() -> None:
    callback = OomHint()
    callback.on_train_begin()
    batch = torch.zeros(3)
    alive = weakref.ref(batch)
    callback.on_batch_begin(batch=batch)
    callback.on_batch_end()
    del batch
    gc.collect()
    assert alive() is None


def test_all_arrays_of_a_batch_are_listed_with_their_places() -> None:
    @attrs.frozen
    class Pair:
        left: object
        right: object

    rows = pa.RecordBatch.from_pydict({"n": [1, 2, 3]})
    batch = {"images": [torch.zeros(2, 3, dtype=torch.bfloat16)], "pair": Pair(np.zeros(4), rows), "name": "x"}
    assert describe_batch(batch) == (
        "images.0: bfloat16[2, 3] on cpu (12 B), pair.left: float64[4] (32 B), pair.right: 3 rows in RecordBatch (24 B)"
    )
    assert describe_batch(torch.zeros(1024, 1024)) == "float32[1024, 1024] on cpu (4.0 MiB)"


def test_a_batch_of_many_arrays_or_none_is_told_in_short() -> None:
    assert describe_batch([torch.zeros(1)] * 15).endswith("11: float32[1] on cpu (4 B), and 3 more")
    assert describe_batch(None) == "of class NoneType"


def test_a_batch_that_contains_itself_has_an_end() -> None:
    batch: list[Any] = []
    batch.append(batch)
    assert describe_batch(batch) == "of class list"


def test_sizes_are_told_in_the_unit_that_fits() -> None:
    assert [in_words(size) for size in (0, 1023, 1024, 5 * 2**20, 80 * 2**30, 2**44)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 MiB", "80.0 GiB", "16384.0 GiB"
    ]  # fmt: skip


def test_the_memory_of_the_process_and_of_the_machine_is_described() -> None:
    size = r"\d+\.\d [MG]iB"
    pattern = f"the process takes {size}, and {size} at the peak; the machine has {size}, of which {size} are free"
    assert re.fullmatch(pattern, describe_memory("cpu"))
