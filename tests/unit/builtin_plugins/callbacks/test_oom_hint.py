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

from hostcore_builtin_plugins.callbacks.oom_hint import OomHint
from hostcore_hookspecs import HostcoreError

Course = Callable[..., Any]


def cuda_allocator() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. expandable_segments:True")


def wrapped() -> None:
    try:
        cuda_allocator()
    except RuntimeError as error:
        raise ValueError("the step failed") from error


OUT_OF_MEMORY = {
    "cpu": lambda: torch.empty(2**60, dtype=torch.uint8),
    "numpy": lambda: np.empty(2**60, np.uint8),
    "pyarrow": lambda: pa.allocate_buffer(2**60),
    "cuda": cuda_allocator,
    "wrapped": wrapped,
}


def raised_by(name: str) -> BaseException:
    with pytest.raises(Exception) as caught:
        OUT_OF_MEMORY[name]()
    return caught.value


def noted(run: Any, error: BaseException, *calls: str, batch: Any = None) -> str:
    """The note that an error gets, after some hooks and the beginning of a step with a batch."""
    callback = OomHint()
    for call in calls:
        getattr(callback, call)()
    if batch is not None:
        callback.on_batch_begin(batch=batch)
    callback.on_exception(error=error, run_state=run.run_state, ctx=run.ctx)
    return "".join(getattr(error, "__notes__", []))


@pytest.mark.parametrize("allocator", OUT_OF_MEMORY)
def test_whatever_ran_out_of_memory_gets_the_batch_the_memory_and_what_to_change(
    course: Course, allocator: str
) -> None:
    run = course(dataset={}, batch_size=33, global_batch_size=66)
    run.to_step(7)
    error = raised_by(allocator)
    noted(run, error, "on_train_begin", batch={"x": torch.zeros(32, 16)})
    shown = "".join(traceback.format_exception(error))
    assert "memory ran out in step 8, with the batch x: float32[32, 16] on cpu (2.0 KiB)" in shown
    size = r"\d+\.\d [MG]iB"
    pattern = f"the process takes {size}, and {size} at the peak; the machine has {size}, of which {size} are free"
    assert re.search(pattern, shown)
    assert 'set "batch_size" of the dataset to 11 and "global_batch_size" to 66' in error.hint


@pytest.mark.parametrize(
    "error", [ValueError("out of memory"), KeyError("x"), RuntimeError("shapes differ"), KeyboardInterrupt()]
)
def test_other_errors_are_left_alone(course: Course, error: BaseException) -> None:
    assert noted(course(), error) == ""
    assert not hasattr(error, "hint")
    error.__context__, error.__suppress_context__ = MemoryError(), True  # raise … from None, while it was cleaned up
    assert noted(course(), error) == ""


def test_a_hint_that_the_error_has_is_kept(course: Course) -> None:
    error = HostcoreError("the cache is full", hint="empty it")
    error.__cause__ = MemoryError()
    assert noted(course(), error)
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
    run = course()
    assert noted(run, MemoryError(), *calls).startswith(where)
    run.ctx.sanity_checking = True
    assert noted(run, MemoryError(), *calls).startswith("memory ran out in the check of the validation")


@pytest.mark.parametrize(
    ("device", "action", "told", "has", "lacks"),
    [
        ("cuda:0", "cuda", "cuda:0", "bf16", "window_bytes"),
        ("cuda:0", "cpu", "cpu", "window_bytes", "bf16"),
        ("cuda:0", "numpy", "cpu", "window_bytes", "bf16"),
        ("cpu", "cpu", "cpu", "window_bytes", "bf16"),
    ],
)
def test_the_advice_is_about_the_memory_that_ran_out(
    course: Course, monkeypatch: pytest.MonkeyPatch, device: str, action: Any, told: str, has: str, lacks: str
) -> None:
    monkeypatch.setattr("hostcore_builtin_plugins.callbacks.oom_hint.describe_memory", lambda device: f"of {device}")
    run, error = course(dataset={}, batch_size=1), raised_by(action)
    run.ctx.device = device
    assert noted(run, error).endswith(f"of {told}")
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


@attrs.frozen
class Pair:
    left: object
    right: object


BATCH = {
    "images": [torch.zeros(2, 3, dtype=torch.bfloat16)],
    "pair": Pair(np.zeros(4), pa.RecordBatch.from_pydict({"n": [1, 2, 3]})),
    "name": "x",
}
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("batch", "listed"),
    [
        (
            BATCH,
            "images.0: bfloat16[2, 3] on cpu (12 B), pair.left: float64[4] (32 B), "
            "pair.right: 3 rows in RecordBatch (24 B)",
        ),
        (torch.zeros(1024, 1024), "float32[1024, 1024] on cpu (4.0 MiB)"),
        ([torch.zeros(1)] * 15, "11: float32[1] on cpu (4 B), and 3 more"),
        ("no array", "of class str"),
        (ENDLESS, "of class list"),
    ],
    ids=["of all kinds", "one", "many", "none", "endless"],
)
def test_the_arrays_of_a_batch_are_listed_with_their_places(course: Course, batch: Any, listed: str) -> None:
    assert noted(course(), MemoryError(), batch=batch).partition("\n")[0].endswith(listed)
