"""The callback ``oom-hint``: the state of a run that has run out of memory, and the remedies."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore_hookspecs import Job, RunState, StepContext

#: How libraries say it that have no class of exceptions for it, in lower case.
_WORDS: Final = ("out of memory", "can't allocate memory", "cannot allocate memory", "_alloc_failed")
_DEEPEST_CAUSE: Final = 10
_LISTED: Final = 12
_DEEPEST: Final = 4


class OomHint:
    """Adds a note and a hint to an error for which memory ran out. Between two steps it holds no batch."""

    def __init__(self) -> None:
        #: The batch of the step that is being made.
        self._batch: Any = None
        #: What the run is doing, between two steps.
        self._doing = "before the first step, so the model, the optimizer or the data took it"

    def on_train_begin(self) -> None:
        """The trainer has been set up."""
        self._doing = "between two steps"

    def on_batch_begin(self, batch: Any) -> None:
        """Keep hold of the batch while the step is made."""
        self._batch = batch

    def on_batch_end(self) -> None:
        """Let go of it."""
        self._batch = None

    def on_validation_begin(self) -> None:
        """Not a step of the training."""
        self._doing = "in the validation"

    def on_validation_end(self) -> None:
        """On with the training."""
        self._doing = "between two steps"

    def on_test_begin(self) -> None:
        """Not a step of the training."""
        self._doing = "in the test"

    def on_exception(self, error: BaseException, run_state: RunState, ctx: StepContext) -> None:
        """Describe the memory, if the run fails for the lack of it."""
        batch, self._batch = self._batch, None
        if not is_out_of_memory(error):
            return
        device = "cpu" if _is_the_machines(error) else str(ctx.device)
        if getattr(error, "hint", None) is None:
            error.hint = "; ".join(_advice(device, ctx.job))  # type: ignore[attr-defined]
        where = "in the check of the validation" if ctx.sanity_checking else self._doing
        if batch is not None:
            where = f"in step {run_state.step + 1}, with the batch {describe_batch(batch)}"
        error.add_note(f"memory ran out {where}\n{describe_memory(device)}")


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an error, or its cause, means that memory ran out: a device's or the machine's."""
    return any(_says_so(one) for one in _chain(error))


def _advice(device: str, job: Job) -> Iterator[str]:
    """Yield the remedies, the cheapest first.

    :param device: Whose memory ran out.
    """
    rows = job.batch_size
    if job.dataset is not None and rows > 1:
        smaller = max(one for one in range(1, rows // 2 + 1) if rows % one == 0)
        yield (
            f'set "batch_size" of the dataset to {smaller} and "global_batch_size" to {job.global_batch_size}, which '
            "the host then makes up of more micro-batches, if the trainer can accumulate"
        )
    if device == "cpu":
        yield "lower window_bytes, readahead or workers of the dataset"
    elif job.precision == "fp32":
        yield 'set "precision" to "bf16", which halves the activations'
    yield "have the model recompute its activations (torch.utils.checkpoint)"


def _is_the_machines(error: BaseException) -> bool:
    """Return True if the machine's memory ran out, not that of an accelerator."""
    return any(isinstance(one, MemoryError) or "cpuallocator" in str(one).lower() for one in _chain(error))


def _says_so(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    # torch.OutOfMemoryError is a RuntimeError too, and always says "out of memory".
    return isinstance(error, RuntimeError | OSError) and any(one in str(error).lower() for one in _WORDS)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST_CAUSE):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def describe_memory(device: str) -> str:
    """Return the memory in use now, at most, and in all.

    :param device: Such as ``cuda:0``; for one without memory of its own, the process's is described.
    """
    kind = device.partition(":")[0]
    if kind == "cuda":
        return _of_cuda(device)
    return _of_mps() if kind == "mps" else _of_process()


def _of_cuda(device: str) -> str:
    import torch

    used, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    peak = torch.cuda.max_memory_allocated(device)
    free, total = torch.cuda.mem_get_info(device)
    return (
        f"{device} has {in_words(total)}, of which {in_words(free)} are free; PyTorch holds {in_words(reserved)}, "
        f"{in_words(used)} of it in tensors, and {in_words(peak)} at the peak"
    )


def _of_mps() -> str:
    import torch

    used, driver = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
    return (
        f"Metal has given the process {in_words(driver)}, {in_words(used)} of it in tensors; it recommends at most "
        f"{in_words(torch.mps.recommended_max_memory())}"
    )


def _of_process() -> str:
    import psutil

    machine = psutil.virtual_memory()
    return (
        f"the process takes {in_words(psutil.Process().memory_info().rss)}, and {in_words(_peak())} at the peak; the "
        f"machine has {in_words(machine.total)}, of which {in_words(machine.available)} are free"
    )


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def describe_batch(batch: Any) -> str:
    """The arrays and tensors of a batch: ``x: float32[32, 16] on cpu (2.0 KiB), y: int64[32] on cpu (256 B)``.

    :param batch: What ``prepare_batch`` returned: arrays, tensors, record batches, and mappings, sequences and objects
        of these.
    """
    listed = [(name, _of_array(value)) for name, value in _arrays(batch, "", _DEEPEST)]
    words = [f"{name}: {words}" if name else words for name, words in listed[:_LISTED]]
    if len(listed) > _LISTED:
        words.append(f"and {len(listed) - _LISTED} more")
    return ", ".join(words) or f"of class {type(batch).__name__}"


def in_words(size: float) -> str:
    """A size in bytes."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _arrays(value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """All arrays in a value, with their places in it."""
    if _is_array(value) or hasattr(value, "num_rows"):
        yield name, value
    elif depth:
        for key, inner in _members(value):
            yield from _arrays(inner, f"{name}.{key}" if name else key, depth - 1)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), inner) for key, inner in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield from ((str(place), inner) for place, inner in enumerate(value))
    elif attrs.has(type(value)):
        yield from ((field.name, getattr(value, field.name, None)) for field in attrs.fields(type(value)))
    else:
        yield from getattr(value, "__dict__", {}).items()


def _of_array(value: Any) -> str:
    if not _is_array(value):
        return f"{value.num_rows} rows in {type(value).__name__} ({in_words(getattr(value, 'nbytes', 0))})"
    shape = tuple(value.shape)
    dtype = str(value.dtype).removeprefix("torch.")
    device = getattr(value, "device", None)
    where = f" on {device}" if hasattr(device, "type") else ""  # NumPy's is always the text "cpu"
    itemsize = getattr(value.dtype, "itemsize", 0)
    return f"{dtype}{list(shape)}{where} ({in_words(math.prod(shape) * itemsize)})"
