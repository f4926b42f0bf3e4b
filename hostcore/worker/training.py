"""What the training loop works with."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol

import attrs

from hostcore.events.writer import RankLog
from hostcore.worker import randomness
from hostcore.worker.feed.feed import Feed
from hostcore.worker.feed.transform import Transformer
from hostcore.worker.metrics import Meter
from hostcore.worker.progress import Progress
from hostcore.worker.stop import StopSwitch
from hostcore_hookspecs import events
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.job import Job

Call = Callable[..., Any]


class Saver(Protocol):
    """Writes checkpoints; see ``hostcore.worker.checkpointing``."""

    has_news: bool

    def save(self, *, final: bool) -> None:
        """Begin a checkpoint of the present state, unless there is one."""

    def finish(self) -> None:
        """Wait for the checkpoint that is being written, and tell what became of it."""


def nothing(*_: Any) -> None:
    """A hook that nobody implements, where it is not called at every step."""


@attrs.frozen(kw_only=True)
class Hooks:
    """The calls of the loop, bound once. None: nobody implements it."""

    prepare_batch: Call
    train_step: Call
    on_train_begin: Call = nothing
    on_train_end: Call = nothing
    on_epoch_begin: Call = nothing
    on_epoch_end: Call = nothing
    on_batch_begin: Call | None = None
    on_batch_end: Call | None = None
    on_stop_requested: Call = nothing


@attrs.frozen(kw_only=True, eq=False)
class Training:
    """Everything that the loop works with. Made by ``hostcore.worker.attempt``."""

    job: Job
    ctx: StepContext
    #: What the trainer's ``configure`` returned.
    state: Any
    hooks: Hooks
    feed: Feed
    #: What becomes of a batch before ``prepare_batch``; None: nothing.
    transformer: Transformer | None = None
    progress: Progress
    #: The step after which the run is complete.
    total_steps: int
    saver: Saver
    stop: StopSwitch
    log: RankLog
    meter: Meter

    def emit(self, payload: events.Payload) -> None:
        """Append an event to the rank's log."""
        run_state = self.progress.state
        self.log.write(payload, step=run_state.step, epoch=run_state.epoch)

    @contextmanager
    def batches(self) -> Iterator[Iterator[Any]]:
        """The batches from where the run stands to the end of its epoch. They end early when the run is to stop."""
        cursor = self.progress.cursor
        stream = self.feed.stream(cursor, stopping=lambda: self.stop.requested)
        with self.progress.reading(stream):
            batches = iter(stream)
            if self.transformer is not None:
                batches = self.transformer.apply(batches, cursor)
            with randomness.kept():  # finding a place in the data may draw
                first = list(islice(batches, 1))
            yield _in_front(first, batches)


def _in_front(first: list[Any], batches: Iterator[Any]) -> Iterator[Any]:
    """The first batches and the others. None is held longer than it is used: a batch is a part of a whole window."""
    while first:
        yield first.pop(0)
    yield from batches
