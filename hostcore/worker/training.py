"""Objects of the training loop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from typing import Any

import attrs

from hostcore.worker import randomness
from hostcore.worker.checkpoints.checkpointer import Checkpointer
from hostcore.worker.evaluation import EvaluationLoop
from hostcore.worker.feed.feed import Feed
from hostcore.worker.feed.transform import Transformer
from hostcore.worker.metrics import Meter
from hostcore.worker.progress import TrainingProgress
from hostcore.worker.ranks.protocol import Meeting, Ranks
from hostcore.worker.requests import Requests
from hostcore.worker.sampling import Sampling
from hostcore.worker.stop import StopSwitch
from hostcore_hookspecs import events
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.job import Job

Call = Callable[..., Any]


def nothing(*_: Any) -> None:
    """A hook without an implementation, where it is not called at every step."""


def steps_between_validations(job: Job, feed: Feed) -> int:
    """The job's ``validate_every`` in steps; 0: never."""
    if isinstance(job.validate_every, int):
        return job.validate_every
    assert feed.steps_per_epoch is not None
    return feed.steps_per_epoch


@attrs.frozen(kw_only=True)
class LoopCalls:
    """The calls of the loop, bound once. None: without an implementation."""

    prepare_batch: Call
    train_step: Call
    on_train_begin: Call = nothing
    on_train_end: Call = nothing
    on_epoch_begin: Call = nothing
    on_epoch_end: Call = nothing
    on_batch_begin: Call | None = None
    on_batch_end: Call | None = None
    on_sanity_checked: Call = nothing
    on_validation_begin: Call = nothing
    on_validation_end: Call = nothing
    on_test_begin: Call = nothing
    on_test_end: Call = nothing
    on_stop_requested: Call = nothing


@attrs.frozen(kw_only=True, eq=False)
class Training:
    """Everything that the loop works with. Made by :mod:`hostcore.worker.assembly`."""

    job: Job
    ctx: StepContext
    #: What the trainer's ``configure`` returned.
    state: Any
    hooks: LoopCalls
    feed: Feed
    #: What becomes of a batch before ``prepare_batch``; None: nothing.
    transformer: Transformer | None = None
    progress: TrainingProgress
    #: The step after which the run is complete.
    total_steps: int
    #: The first that this attempt finishes.
    first_step: int = attrs.field(
        init=False, default=attrs.Factory(lambda self: self.progress.state.step + 1, takes_self=True)
    )
    saver: Checkpointer
    #: Steps that are trained behind the checkpoint of a stop; see :mod:`hostcore.worker.proving`.
    prove_resume: int = 0
    #: Of the validation, evaluated before the first step of a run.
    sanity_batches: int = 0
    #: Called with what the trainer raised in that evaluation.
    check_failed: Callable[[Exception], None] = nothing
    #: None: the job has no data for it.
    validation: EvaluationLoop | None = None
    test: EvaluationLoop | None = None
    #: None: the job asks for no samples.
    sampling: Sampling | None = None
    stop: StopSwitch
    requests: Requests
    ranks: Ranks
    meeting: Meeting
    emit: Callable[[events.Payload], None]
    #: Writes an event of an earlier step, from another thread; not needed by a single rank.
    emit_beside: Callable[..., None] = nothing
    meter: Meter

    @cached_property
    def validate_every(self) -> int:
        """In steps; 0: never."""
        return steps_between_validations(self.job, self.feed) if self.validation else 0

    @cached_property
    def sample_every(self) -> int:
        """In steps; 0: never."""
        return self.job.sample_every if self.sampling else 0

    @cached_property
    def beat(self) -> Callable[[int], None] | None:
        """Called after every step, with its number; None with a single rank.

        The ranks meet before each checkpoint, so that none of them waits there for one that does something else.
        """
        if self.ranks.world_size == 1:
            return None
        beat, meet, every, last = self.meeting.beat, self.meeting.meet, self.job.checkpoint_every, self.total_steps

        def beat_or_meet(step: int) -> None:
            if step == last or (every and step % every == 0):
                meet()
            else:
                beat()

        return beat_or_meet

    @property
    def probed_until(self) -> int:
        """The last step of this attempt whose metrics are compared with those behind the checkpoint of a stop."""
        return self.first_step + self.prove_resume - 1 if self.first_step > 1 else 0

    @property
    def watched_until(self) -> int:
        """The last step behind which the loop does what it does in the first ones of an attempt."""
        return max(self.first_step, self.probed_until)

    def prepared(self, raw_batch: Any) -> Any:
        """Call ``prepare_batch`` for what a step takes: a batch, or with ``accumulate`` several."""
        place, prepare_batch = self.progress.state.batch_in_epoch, self.hooks.prepare_batch
        if self.job.accumulate == 1:
            self.ctx.batch_index = place
            return prepare_batch(raw_batch, self.state, self.ctx)
        prepared = []
        for self.ctx.batch_index, one in enumerate(raw_batch, place * len(raw_batch)):
            prepared.append(prepare_batch(one, self.state, self.ctx))
        return tuple(prepared)

    @contextmanager
    def batches(self, *, stops: bool = True) -> Iterator[Iterator[Any]]:
        """The batches from where the run stands to the end of its epoch. They end early when the run is to stop.

        With ``accumulate``, a batch is a tuple of those that a step takes together.
        """
        cursor = self.progress.cursor
        stream = self.feed.stream(cursor, stopping=lambda: stops and self.stop.requested)
        self.ctx.row_slice = stream.row_slice
        with self.progress.reading(stream):
            batches = iter(stream)
            if self.transformer is not None:
                batches = self.transformer.apply(batches, cursor)
            if self.job.accumulate > 1:
                batches = _together(batches, self.job.accumulate)
            yield _begun(batches)


def _together(batches: Iterator[Any], count: int) -> Iterator[tuple[Any, ...]]:
    """Tuples of batches. What does not fill one, because the run is to stop, is dropped."""
    while len(group := tuple(islice(batches, count))) == count:
        yield group


def _begun(batches: Iterator[Any]) -> Iterator[Any]:
    """Batches of which the first has been read. None is held longer than it is used: it is a part of a whole window."""
    with randomness.kept():  # finding a place in the data may draw
        first = list(islice(batches, 1))
    return chain(first, batches)
