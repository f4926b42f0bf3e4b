"""The host as components see it through their context: what they ask for is noted, and done at the batch boundary."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import attrs

from hostcore.worker.metrics import InvalidStepResult, read_named, training_name
from hostcore.worker.ranks.protocol import Ranks
from hostcore.worker.stop import EndRequest, StopSwitch
from hostcore_hookspecs import events
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.run_state import Best, RunState

if TYPE_CHECKING:
    from hostcore.worker.feed.splitting import Splitting

#: A call, or None where there is nothing to call.
C = TypeVar("C", bound=Callable[..., Any] | None)


class OutsideOfStep(HostcoreError):
    """A component records a metric where there is no step that it could belong to."""

    code = "metrics.outside_of_step"


class Recorded(NamedTuple):
    """Value recorded by a component at the present step."""

    name: str
    value: Any
    #: Of the code that has recorded it. Who that is costs microseconds to find out, and is asked in errors alone.
    frame: FrameType


@attrs.define(kw_only=True)
class Owed:
    """Work that is due at the present step, in the order in which it is done. A checkpoint keeps what is left of it."""

    validation: bool = False
    #: Whether the requests made before that validation have been answered: those that remain come behind it.
    answered: bool = False
    #: The number of the sample that comes next; None: none is due.
    sample: int | None = None
    #: Requests for a checkpoint of this step.
    best: list[Best] = attrs.field(factory=list)
    #: The step of a checkpoint to go back to, why, and who asked.
    restore: tuple[int, str, str] | None = None
    #: The request that ends the run as succeeded, until the test behind it is made.
    ending: EndRequest | None = None

    @property
    def names(self) -> list[str]:
        """Evaluations that are due, by the names of the ``run_resumed`` event."""
        names = ["validation"] if self.validation else []
        return names if self.sample is None else [*names, f"samples/{self.sample}"]

    def stored(self, job: Job, *, total_steps: int) -> dict[str, Any]:
        """The content for a checkpoint, as a tree.

        :param total_steps: A resume that asks for more is not ended by an earlier request.
        """
        ending = self.ending and [*self.ending]
        return {**attrs.asdict(self), "ending": ending, "run_id": job.run_id, "total_steps": total_steps}

    def load(self, stored: Mapping[str, Any], job: Job, *, total_steps: int) -> None:
        """Take over what a checkpoint keeps; of another run's, the evaluations alone, as far as the job has them."""
        self.validation, self.answered = stored["validation"] and job.validation is not None, stored["answered"]
        self.sample = stored["sample"] if stored["sample"] in range(len(job.samples)) else None
        if stored["run_id"] == job.run_id:
            self.best = [Best(**one) for one in stored["best"]]
            self.restore = stored["restore"] and tuple(stored["restore"])
            if stored["ending"] and stored["total_steps"] == total_steps:
                self.ending = EndRequest(*stored["ending"])


class _StepBrokenOff(BaseException):
    """Raised out of ``ctx.repeat_step()``; no error, so nobody handles it as such."""


class Requests:
    """Requests of components since the last batch boundary. See :class:`hostcore_hookspecs.context.Host`.

    :param switch: Takes this rank's requests to stop.
    :param is_stopping: Whether the ranks have agreed to stop.
    :param asker: Names the component that is running.
    :param author_of: Names the component whose code a frame has run.
    :param ranks: Those that decide together by ``any_rank``.
    :param emit: Appends an event to the rank's log.
    :param run_state: Where the run stands.
    :param metric_every: The job's.
    :param checkpoint_seconds: The job's; 0: no checkpoint is due by time.
    :param clock: In seconds; that of the first rank counts.
    """

    def __init__(
        self,
        switch: StopSwitch,
        *,
        is_stopping: Callable[[], bool],
        asker: Callable[[], str],
        ranks: Ranks,
        emit: Callable[[events.Payload], None],
        author_of: Callable[[FrameType], str],
        run_state: RunState,
        metric_every: int,
        checkpoint_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_stopping = is_stopping
        self.any_rank = ranks.any
        self._switch = switch
        self._asker = asker
        self._emit = emit
        self._author_of = author_of
        self._run_state = run_state
        self._metric_every = metric_every
        #: Whether the loop is at its steps; what it calls between them is bound with :meth:`outside`.
        self.in_step = False
        #: Of the present step, in the order of the calls.
        self.recorded: list[Recorded] = []
        #: Due at the present step.
        self.owed = Owed()
        #: Makes steps again for which memory ran out; None: the trainer does not declare that it may.
        self.splitting: Splitting | None = None
        #: Whether ``train_step`` may be called again for the same batch.
        self.repeats_steps = False
        #: Whether there is anything to do. Read by the loop at every step.
        self.pending = False
        # A checkpoint by time is news: of the first rank, to all; see :class:`hostcore.worker.ranks.protocol.News`.
        self.news_here = self._is_due = False
        self.acted = 0
        self._decides, self._is_alone = checkpoint_seconds > 0 and ranks.rank == 0, ranks.world_size == 1
        self._seconds, self._clock, self._since = checkpoint_seconds, clock, clock()
        self._ignored_on: int | None = None

    @contextmanager
    def ignored(self) -> Iterator[None]:
        """Ignore what components ask for on this thread: nobody decides by a part of a validation."""
        self._ignored_on = get_ident()
        try:
            yield
        finally:
            self._ignored_on = None

    @property
    def _is_ignored(self) -> bool:
        return self._ignored_on == get_ident()

    @property
    def has_news(self) -> bool:
        """Return whether all ranks know that a checkpoint is due by time."""
        return self._is_due

    @has_news.setter
    def has_news(self, is_due: bool) -> None:
        self._is_due = is_due
        self.pending = self.pending or is_due

    def look_at_clock(self) -> None:
        """Note that a checkpoint is due by time, on the rank whose clock decides that."""
        if self._decides and self._clock() - self._since >= self._seconds:
            if self._is_alone:
                self.has_news = True
            else:
                self.news_here = True

    def restart_clock(self) -> None:
        """Begin to count anew: what was due by time is begun. On all ranks after the same step."""
        self.news_here = self.has_news = False
        self.acted += 1
        self._since = self._clock()

    def request_stop(self, reason: str) -> None:
        """Ask the run to stop, in the name of the component that is running."""
        if self._is_ignored:
            return
        self._switch.request(reason, self._asker())

    def begin_update(self) -> None:
        """The present step cannot be made again from here on."""
        if self.splitting is not None:
            self.splitting.begin_update()

    def keep_batches_whole(self, reason: str) -> None:
        """No step can be made again."""
        if self.splitting is not None:
            self.splitting.kept_whole = reason

    def repeat_step(self) -> NoReturn:
        """Break off the present step, for it to be made again."""
        if not self.repeats_steps:
            raise RuntimeError("the trainer does not declare Capabilities(repeatable=True), so no step is made again")
        raise _StepBrokenOff

    def repeating(self, train_step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a ``train_step`` that is made again for as long as :meth:`repeat_step` breaks it off."""
        self.repeats_steps = True

        def again(prepared_batch: Any, state: Any, ctx: StepContext) -> Any:
            recorded = len(self.recorded)
            while True:
                try:
                    return train_step(prepared_batch, state, ctx)
                except _StepBrokenOff:
                    del self.recorded[recorded:]

        return again

    def warn(self, message: str) -> None:
        """Write a warning into the log, in the name of the component that is running."""
        self._emit(events.Warning(code="component", message=f"{message} ({self._asker()})"))

    def request_best(self, best: Best) -> None:
        """Ask for a checkpoint of the present step."""
        if self._is_ignored:
            return
        self.owed.best.append(best)
        self.pending = True

    def request_restore(self, step: int, reason: str) -> None:
        """Ask to go back to a checkpoint. The first who asks counts."""
        if self._is_ignored:
            return
        self.owed.restore = self.owed.restore or (step, reason, self._asker())
        self.pending = True

    def outside(self, call: C) -> C:
        """A call of the loop that belongs to no step: what it records is refused."""
        if call is None:
            return call

        def call_outside(*arguments: Any) -> Any:
            was, self.in_step = self.in_step, False
            try:
                return call(*arguments)
            finally:
                self.in_step = was

        return call_outside  # type: ignore[return-value] # takes what the call takes

    def record(self, name: str, value: Any) -> None:
        """Keep a metric for the end of the present step, if that can be one whose metrics are recorded.

        :raises OutsideOfStep: There is no such step.
        """
        if not self.in_step:
            raise OutsideOfStep(
                f"ctx.record({name!r}, …) was called outside of a training step",
                hint="call it in on_batch_begin or on_batch_end, or around prepare_batch or train_step; the metrics of"
                " a validation are those that the trainer returns",
                plugin=self._asker(),
            )
        every, last = self._metric_every, self._run_state.total_steps
        step = self._run_state.step  # the present one is this, or the next: it is counted in the middle
        if every and ((step + 1) % every <= 1 or last - 1 <= step <= last):
            self.recorded.append(Recorded(name, value, sys._getframe(2)))
            self.pending = True

    def with_recorded(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics of a step, and what components have recorded at it. Reads tensors.

        :param metrics: Of ``train_step``, by recorded name.
        :raises InvalidStepResult: One of them has a name that another has, or is no number.
        """
        together = dict(metrics)
        for number, one in enumerate(self.recorded):
            where = f"{self._author_of(one.frame)}, recorded at step {self._run_state.step},"
            ((name, value),) = read_named({one.name: one.value}, where, name_of=training_name).items()
            if name in together:
                others = [other for other in self.recorded[:number] if training_name(other.name) == name]
                other = self._author_of(others[0].frame) if others else "train_step"
                raise InvalidStepResult(
                    f"{self._author_of(one.frame)} records {name!r} at step {self._run_state.step}, which {other}"
                    " reports already",
                    hint="give one of them another name, or leave one out: a metric is recorded once",
                    plugin=self._author_of(one.frame),
                )
            together[name] = value
        return together

    def owe_validation(self) -> None:
        """Note that a validation is due at the present step."""
        self.owed.validation, self.owed.answered, self.pending = True, False, True

    def owe_samples(self) -> None:
        """Note that samples are due at the present step."""
        self.owed.sample, self.pending = 0, True

    def load_owed(self, stored: Mapping[str, Any], job: Job) -> None:
        """Take over what an earlier attempt has left at its last step.

        :param stored: Of a checkpoint; see :meth:`Owed.stored`. Empty in those of earlier versions.
        """
        if stored:
            self.owed.load(stored, job, total_steps=self._run_state.total_steps)
            self.pending = bool(self.owed.names or self.owed.best or self.owed.restore)
        if self.owed.ending is not None:
            self._switch.request(self.owed.ending.reason, self.owed.ending.requested_by)

    def take_best(self) -> list[Best]:
        """The requests for a checkpoint since the last call."""
        taken, self.owed.best, self.pending = self.owed.best, [], self.has_news
        return taken
