"""Steps that are made again in parts: when memory runs out in ``train_step``, of a trainer that declares it may.

Until ``train_step`` calls ``ctx.begin_update()``, it has changed nothing but gradients, which can be thrown away. So a
step for which memory runs out before is made again: each batch is cut into parts of half as many rows, each part is
prepared like a batch, and ``train_step`` gets all of them as it gets the batches of a job that accumulates. That is
repeated until the step fits, or a part is one row. The size that was found holds for the rest of the run.

All ranks take the same parts. In ``begin_update`` they exchange whether memory was enough, before any of them
begins a collective; a rank whose memory ran out reports that in its place, and all make the step again.

Where a step breaks off is left to chance, and so is what it has drawn from random generators. A step that is made again
begins with generators seeded for it, so a run that is repeated or resumed does the same.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import torch

from hostcore.events.bounds import bounded
from hostcore.secrets.scrub import scrub
from hostcore.worker import randomness
from hostcore.worker.metrics import InvalidStepResult
from hostcore.worker.modes import modules_in
from hostcore.worker.progress import TrainingProgress
from hostcore.worker.ranks.outcome import DistributedError
from hostcore.worker.ranks.protocol import Ranks
from hostcore_builtin_plugins.callbacks.oom_hint import describe_memory, is_out_of_memory
from hostcore_hookspecs import events
from hostcore_hookspecs.context import StepContext

Call = Callable[..., Any]


class MissingUpdate(InvalidStepResult):
    """A trainer that declares ``split_on_oom`` does not call ``begin_update``."""


class _MemoryElsewhere(Exception):
    """Raised out of ``ctx.begin_update()``: memory has run out on another rank."""


class _Parts(tuple[Any, ...]):
    """The prepared parts of one batch."""

    __slots__ = ()


class _MemoryShortage(NamedTuple):
    """Message of a rank whose memory ran out."""

    error: str
    memory: str


class Splitting:
    """Stands around a trainer's ``prepare_batch`` and ``train_step``.

    :param recorded: What components have recorded at the present step.
    :param emit: Writes an event.
    """

    def __init__(
        self, *, ranks: Ranks, progress: TrainingProgress, recorded: list[Any], emit: Callable[..., None]
    ) -> None:
        self._ranks = ranks
        self._progress = progress
        self._recorded = recorded
        self._emit = emit
        #: The batches of the present step as they were before ``prepare_batch``, each with its ``ctx.batch_index``.
        self._raw: list[tuple[Any, int]] = []
        self._is_updating = False
        self._prepare_batch: Call
        self._train_step: Call
        #: Why no step can be made again; None: it can.
        self.kept_whole: str | None = None

    def begin_update(self) -> None:
        """See :meth:`hostcore_hookspecs.context.StepContext.begin_update`."""
        if self._is_updating:
            return
        if self.kept_whole is None and self._ranks.any(False):
            raise _MemoryElsewhere
        self._is_updating = True

    def around(self, prepare_batch: Call, train_step: Call) -> tuple[Call, Call]:
        """The calls that the loop makes in place of these."""
        self._prepare_batch, self._train_step = prepare_batch, train_step
        return self._prepared, self._trained

    def _prepared(self, raw_batch: Any, state: Any, ctx: StepContext) -> Any:
        # prepare_batch may take keys out of a mapping, which a step that is made again needs.
        self._raw.append((dict(raw_batch) if isinstance(raw_batch, Mapping) else raw_batch, ctx.batch_index))
        size = self._progress.micro_batch_rows
        if not size or not rows_of(raw_batch):  # what cannot be cut stays whole
            return self._prepare_batch(raw_batch, state, ctx)
        return _Parts(self._prepare_batch(one, state, ctx) for one in cut(raw_batch, size))

    def _trained(self, batch: Any, state: Any, ctx: StepContext) -> Any:
        recorded, shortage = len(self._recorded), None
        try:
            while True:
                self._is_updating = False
                try:
                    result = self._train_step(_flat(batch, ctx), state, ctx)
                    break
                except Exception as error:
                    shortage = self._shortage(error, ctx)
                    if shortage is None:
                        raise
                # The error is gone here, and with its traceback the tensors of the step.
                batch = None
                del self._recorded[recorded:]
                _clean_up(state, ctx)
                batch = self._prepared_again(state, ctx)
            self._check(ctx)
            if shortage is not None:
                self._tell(*shortage)
            return result
        finally:
            self._raw.clear()

    def _check(self, ctx: StepContext) -> None:
        if not self._is_updating:
            raise MissingUpdate(
                f"train_step returned at step {ctx.run_state.step + 1} without a call of ctx.begin_update()",
                hint="a trainer that declares split_on_oom calls it once in each train_step, behind the last backward"
                " and before anything else that it changes",
            )

    def _shortage(self, error: Exception, ctx: StepContext) -> "tuple[int, _MemoryShortage] | None":
        """Return the rank whose memory ran out, if the step is to be made again. On several ranks a collective.

        :return: None: the error is to be raised.
        """
        is_elsewhere = isinstance(error, _MemoryElsewhere)
        if not is_elsewhere:
            if not is_out_of_memory(error):
                return None
            if self._is_updating or self.kept_whole is not None:
                why = self.kept_whole or "the update had begun already"
                error.add_note(f"the step was not made again with its batch in parts: {why}")
                return None
            self._ranks.any(True)
        own = None if is_elsewhere else _MemoryShortage(_said(error), describe_memory(str(ctx.device)))
        rows = _most_rows(self._raw) if all(rows_of(one) for one, _ in self._raw) else 0
        told = self._ranks.gather((own, rows))
        first, said = next((rank, one) for rank, (one, _) in enumerate(told) if one is not None)
        problem = self._halve([rows for _, rows in told])
        if problem is None:
            return first, _MemoryShortage(*said)
        if is_elsewhere:
            raise DistributedError(f"rank {first}: {said[0]}") from None
        error.add_note(problem)
        return None

    def _halve(self, rows_by_rank: list[int]) -> str | None:
        """Let parts be half as large; why they cannot be. On all ranks the same.

        :param rows_by_rank: Of each rank's largest batch; 0: of one they are not known.
        """
        if not all(rows_by_rank):
            return "the step was not made again with its batch in parts: the rows of such a batch are not known"
        rows = max(rows_by_rank)
        size = min(self._progress.micro_batch_rows or rows, rows)
        if size < 2:
            return "not even a part of one row fits"
        self._progress.micro_batch_rows = (size + 1) // 2
        return None

    def _prepared_again(self, state: Any, ctx: StepContext) -> _Parts:
        randomness.begin_again(ctx.job.seed, ctx.run_state.step, ctx.rank)

        def parts() -> Iterator[Any]:
            for raw_batch, ctx.batch_index in self._raw:
                ctx.rng = None
                for one in cut(raw_batch, self._progress.micro_batch_rows):
                    yield self._prepare_batch(one, state, ctx)

        return _Parts(parts())

    def _tell(self, rank: int, said: _MemoryShortage) -> None:
        event = events.BatchSplit(
            rows=_most_rows(self._raw),
            micro_batch_rows=self._progress.micro_batch_rows,
            error=said.error,
            rank=rank,
            memory=said.memory,
        )
        self._emit(event, step=self._progress.state.step + 1)


def rows_of(raw_batch: Any) -> int:
    """Count the rows of a batch that can be cut; 0: it cannot be.

    That is a record batch, or a mapping of arrays, tensors or lists of one length.
    """
    if isinstance(raw_batch, pa.RecordBatch):
        return raw_batch.num_rows  # type: ignore[no-any-return]
    if not isinstance(raw_batch, Mapping):
        return 0
    lengths = {
        len(one) if isinstance(one, list) or bool(getattr(one, "shape", None)) else 0 for one in raw_batch.values()
    }
    return lengths.pop() if len(lengths) == 1 else 0


def cut(raw_batch: Any, size: int) -> Iterator[Any]:
    """The batch in parts of so many rows; the last may have fewer."""
    for first in range(0, rows_of(raw_batch), size):
        if isinstance(raw_batch, Mapping):
            yield {name: one[first : first + size] for name, one in raw_batch.items()}
        else:
            yield raw_batch.slice(first, size)


def _most_rows(raw: list[tuple[Any, int]]) -> int:
    return max((rows_of(one) for one, _ in raw), default=0)


def _flat(batch: Any, ctx: StepContext) -> Any:
    """Return the argument of ``train_step``: all parts of all batches, side by side."""
    if batch.__class__ is _Parts:
        return tuple(batch)
    if ctx.job.accumulate > 1:
        return tuple(one for each in batch for one in (each if each.__class__ is _Parts else (each,)))
    return batch


def _said(error: Exception) -> str:
    return bounded(f"{type(error).__name__}: {scrub(str(error)).partition(chr(10))[0]}")


def _clean_up(state: Any, ctx: StepContext) -> None:
    """Free what the step has left behind."""
    if ctx.optimizer is not None:
        ctx.optimizer.zero_grad(set_to_none=True)
    for module in modules_in(state):
        module.zero_grad(set_to_none=True)
    gc.collect()
    empty_cache = getattr(getattr(torch, torch.device(ctx.device).type), "empty_cache", None)
    if empty_cache is not None:
        empty_cache()
