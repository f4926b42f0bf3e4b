"""The callback ``oom-hint``: says what a run was doing when memory ran out, and what to change."""

from collections.abc import Iterator
from typing import Any, Final

from hostcore_builtin_plugins.callbacks.batch_shapes import describe_batch
from hostcore_builtin_plugins.callbacks.memory_use import describe_memory
from hostcore_hookspecs import Job, RunState, StepContext

#: How libraries say it that have no class of exceptions for it, in lower case.
_WORDS: Final = ("out of memory", "can't allocate memory", "cannot allocate memory", "_alloc_failed")
_DEEPEST_CAUSE: Final = 10


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
        """Say what is known, if it is memory that the run fails for."""
        batch, self._batch = self._batch, None
        if not is_out_of_memory(error):
            return
        device = "cpu" if _is_the_machines(error) else str(ctx.device)
        if getattr(error, "hint", None) is None:
            error.hint = "; ".join(_advice(device, ctx.job))  # type: ignore[attr-defined]
        where = self._doing
        if batch is not None:
            where = f"in step {run_state.step + 1}, with the batch {describe_batch(batch)}"
        error.add_note(f"memory ran out {where}\n{describe_memory(device)}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or what caused it, says that memory ran out: a device's or the machine's."""
    return any(_says_so(one) for one in _chain(error))


def _advice(device: str, job: Job) -> Iterator[str]:
    """What may help, the cheapest first.

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
    """Whether it is the machine's memory that ran out, not that of an accelerator."""
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
