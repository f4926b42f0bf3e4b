"""``transform_batch``: what becomes of a batch on its way from the feed to ``prepare_batch``.

Without ``dataset.workers`` it is called on the loop's thread, when the batch is asked for; with them in as many
processes, ahead of the loop. The results are the same: what the call gets depends on the batch's place in the data
alone, see :mod:`hostcore.worker.feed.transform_call`.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from hostcore.plugins.errors import named
from hostcore.plugins.hooks import Hooks
from hostcore.plugins.load import Component
from hostcore.plugins.resolve import Selected
from hostcore.worker.feed.feed import Cursor
from hostcore.worker.feed.transform_call import Assignment, Surroundings, TransformCall, bound
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.errors import HostcoreError

_HOOK = "transform_batch"


class Transformer(Protocol):
    """Stands between the feed and the loop for a whole attempt."""

    def apply(self, batches: Iterator[Any], cursor: Cursor) -> Iterator[Any]:
        """Yield the result of ``transform_batch`` for each batch, in order.

        It ends early, without an exception, when the run is to stop while it waits. An exception of the stream or of
        ``transform_batch`` is raised when the batch's turn comes, not before.

        :param batches: This rank's, from the cursor to the end of its epoch. Captured on the caller's
            thread.
        """

    def close(self) -> None:
        """End what was started. Nothing happens the second time."""


def check_workers(trainer: Component, workers: int, *, key: str = "dataset") -> None:
    """Refuse ``dataset.workers`` for a trainer that they can do nothing for.

    :param key: The data's in the job.
    :raises HostcoreError: It has no ``transform_batch``, or is of a module that other processes cannot import.
    """
    if not workers:
        return
    where = {"pointer": f"/{key}/workers", "plugin": trainer.ref.provenance}
    if _HOOK not in trainer.hook_names:
        raise HostcoreError(
            f"{key}.workers needs a trainer with {_HOOK}, and {named(trainer.ref)} has none",
            code="transform.missing",
            hint=f"remove {key}.workers, or move the stateless work of prepare_batch into {_HOOK}",
            **where,
        )
    if type(trainer.instance).__module__ == "__main__":
        raise HostcoreError(
            f"{key}.workers needs a trainer that other processes can import, and {named(trainer.ref)} is part of"
            " the running script",
            code="transform.main",
            hint=f"put the trainer into a module of its own, or remove {key}.workers",
            **where,
        )


def make_transformer(
    *,
    hooks: Hooks,
    components: Sequence[Component],
    selected: Sequence[Selected],
    job_dir: Path,
    ctx: StepContext,
    split: str,
    workers: int,
    stride: int,
    first: int,
    stopping: Callable[[], bool],
) -> Transformer | None:
    """The transformer of an attempt; None when the trainer has no ``transform_batch``.

    Processes are started at once: they import the plugin while the worker sets up. Call it on the thread that will
    close it; the processes end with that thread.

    :param selected: The uses that the components were made of.
    :param job_dir: The folder that import paths are searched in.
    :param ctx: The attempt's; ``transform_batch`` gets one of its own.
    :param split: ``train``, ``validation`` or ``test``.
    :param stride: From the first row of one of this rank's batches to that of the next.
    :param first: From the cursor's row to the first of this rank's.
    :param stopping: Whether the run is to stop.
    """
    trainer = next(one for one in components if one.ref.kind == "trainer")
    surroundings = Surroundings.of(ctx, split)
    call = bound(hooks, trainer, surroundings)
    if call is None:
        return None
    if not workers:
        return _OnTheLoop(call, stride=stride, first=first)
    from hostcore.worker.feed.transform_pool import TransformPool

    needed = {one.use for one in components if one is trainer or _wraps(one)}
    assignment = Assignment(
        selected=tuple(one for one in selected if one.use in needed), job_dir=job_dir, surroundings=surroundings
    )
    return TransformPool(assignment, workers, stride=stride, first=first, stopping=stopping)


def _wraps(component: Component) -> bool:
    return any(found.wrapper and found.hook == _HOOK for found in component.implementations)


class _OnTheLoop:
    """Transforms a batch when it is asked for."""

    def __init__(self, call: TransformCall, *, stride: int, first: int) -> None:
        self._call = call
        self._stride = stride
        self._first = first

    def apply(self, batches: Iterator[Any], cursor: Cursor) -> Iterator[Any]:
        positions = count(cursor.rows + self._first, self._stride)
        for index, batch in enumerate(batches, cursor.rows // self._stride):
            yield self._call(batch, cursor.epoch, next(positions), index)

    def close(self) -> None:
        """There is nothing to end."""
