"""A validation or a test: all of its data, once; means of what the trainer reports for batches, and its own metrics."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, NamedTuple

import attrs

from hostcore.events.codec import finite
from hostcore.plugins.errors import one_line
from hostcore.worker.feed.evaluation import EvaluationBatch, EvaluationFeed
from hostcore.worker.feed.feed import Cursor
from hostcore.worker.feed.transform import Transformer
from hostcore.worker.feed.transform_call import EVALUATION
from hostcore.worker.metrics import (
    InvalidStepResult,
    WeightedMeans,
    evaluation_name,
    mean_over_ranks,
    read_metrics,
    read_named,
    read_weight,
)
from hostcore.worker.modes import evaluating
from hostcore.worker.ranks.outcome import on_first
from hostcore.worker.ranks.protocol import Meeting, Ranks
from hostcore.worker.stop import StopSwitch
from hostcore_builtin_plugins.callbacks.step_metrics import kept
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.step import StepResult

Call = Callable[..., Any]
#: By part of a mixture; of all data under the empty name.
Means = defaultdict[str, WeightedMeans]

#: Results are read in groups: few enough to hold, many enough for a GPU not to wait at every batch.
_RESULTS_HELD: Final = 64
#: For an exception of ``evaluation_metrics`` after a part of the batches.
_NEEDS_MORE: Final = 'if it needs more than the first batches, write "sanity_batches": 0 into the job'


@attrs.frozen(kw_only=True)
class Evaluated:
    """Result of an evaluation."""

    #: Means over the data and over each part of a mixture, and what ``evaluation_metrics`` found; by recorded name.
    metrics: dict[str, float]
    #: Samples or tokens behind them.
    weight: float
    #: Names that some of the ranks have not reported.
    missing: list[str]

    def content(self) -> dict[str, Any]:
        """As the ``validation`` and ``test`` events have it: what is not finite is null, and named."""
        values, nonfinite = finite(self.metrics)
        return {"metrics": values, "nonfinite": nonfinite, "weight": self.weight}


class _UnreadResult(NamedTuple):
    """Result of a batch, to be read behind later ones."""

    number: int
    rows: int
    part: str
    result: Any


@contextmanager
def _split(ctx: StepContext, split: str) -> Iterator[None]:
    """While it is entered, the batches are of this split; behind it, of what they were before."""
    before = ctx.split, ctx.batch_index, ctx.batch_counts
    ctx.split = split
    try:
        yield
    finally:
        ctx.split, ctx.batch_index, ctx.batch_counts = before


@attrs.frozen(kw_only=True, eq=False)
class EvaluationLoop:
    """Runs the trainer's ``validate_step`` or ``test_step`` over a feed."""

    #: ``validation`` or ``test``.
    split: str
    #: ``val`` or ``test``: what metric names without a slash begin with.
    prefix: str
    feed: EvaluationFeed
    transformer: Transformer | None
    prepare_batch: Call
    #: The trainer's method, and its name.
    step: Call
    method: str
    #: The trainer's method; None if it has none.
    evaluation_metrics: Call | None = None
    #: What the trainer's ``configure`` returned.
    state: Any
    ctx: StepContext
    ranks: Ranks
    meeting: Meeting
    stop: StopSwitch
    #: Called now and then: emits progress.
    alive: Callable[[], None]
    #: Called with the reason before all batches are scored where a part should have been enough.
    too_few: Callable[[str], None]

    def run(self, *, at_most: int | None = None) -> Evaluated | None:
        """Evaluate; None when the run is to stop before the end.

        :param at_most: Batches that are enough; all of them if ``evaluation_metrics`` cannot do with these.
        """
        part = at_most if at_most is not None and at_most < self.feed.num_batches else None
        means: Means = defaultdict(WeightedMeans)
        with (
            _split(self.ctx, self.split),
            evaluating(self.state, seed=self.ctx.job.seed, step=self.ctx.run_state.step, rank=self.ctx.rank),
        ):
            if not self._score(means, 0, part):
                return None
            found = self._found(of_all=part is None)
            if found is None:
                if not self._score(means, part or 0, None):
                    return None
                found = self._found(of_all=True)
                assert found is not None
        gathered = self.ranks.gather(({part: one.totals() for part, one in means.items()}, means[""].weight))
        metrics, missing = mean_over_ranks([totals.get("", {}) for totals, _ in gathered])
        self._require_apart(metrics, found)
        of_parts = {
            f"{name}/{part}": mean
            for part in self.feed.parts
            for name, mean in mean_over_ranks([totals[part] for totals, _ in gathered if part in totals])[0].items()
        }
        weight = sum(weight for _, weight in gathered)
        return Evaluated(metrics={**of_parts, **metrics, **found}, weight=weight, missing=missing)

    def _score(self, means: Means, first: int, end: int | None) -> bool:
        """Have the trainer score batches; False when the run is to stop before the last.

        :param first: The number of the first batch.
        :param end: The number behind the last; None: that of all batches.
        """
        held: list[_UnreadResult] = []
        for number, (batch, raw_batch) in enumerate(self._batches(first, end), first):
            self.ctx.batch_index, self.ctx.batch_counts = number, batch.counts
            result = self.step(self.prepare_batch(raw_batch, self.state, self.ctx), self.state, self.ctx)
            if batch.counts:
                held.append(_UnreadResult(number, batch.raw_batch.num_rows, batch.part, _kept(result)))
            if len(held) >= _RESULTS_HELD:
                self._read(held, means)
            self.alive()
            self.meeting.beat()
            if self.stop.interrupted is not None:
                return False
        self._read(held, means)
        self.meeting.meet()  # a rank may have left its data early
        return self.stop.interrupted is None

    def _found(self, *, of_all: bool) -> dict[str, float] | None:
        """Return the trainer's ``evaluation_metrics`` of the first rank, by recorded name, on every rank.

        :param of_all: Whether all batches are scored: what it raises is an error then.
        :return: None when it raised, and there are batches left to score.
        """
        if self.evaluation_metrics is None:
            return {}
        try:
            found = self.evaluation_metrics(self.state, self.ctx)
        except Exception as error:
            if of_all:
                raise
            if self.ranks.world_size > 1:  # the other ranks may wait for this rank, in the trainer's own collectives
                vars(error).setdefault("hint", _NEEDS_MORE)
                raise
            self.too_few(f"evaluation_metrics raised {one_line(error)}")
            return None
        where = f"evaluation_metrics, after {self.method}, at step {self.ctx.run_state.step},"

        def read() -> dict[str, float]:
            if not isinstance(found, Mapping | None):
                raise InvalidStepResult(
                    f"{where} returned {type(found).__name__}",
                    hint="return a mapping of names to numbers, or None",
                )
            return read_named(found or {}, where, name_of=evaluation_name(self.prefix))

        return on_first(self.ranks, read)

    def _require_apart(self, means: Mapping[str, float], found: Mapping[str, float]) -> None:
        both = ", ".join(repr(name) for name in means if name in found)
        if both:
            raise InvalidStepResult(
                f"{self.method} and evaluation_metrics both report {both} at step {self.ctx.run_state.step}",
                hint="leave it out of one of them, or give it another name: a metric is recorded once",
            )

    def _batches(self, first: int, end: int | None) -> Iterator[tuple[EvaluationBatch, Any]]:
        """The batches, and what ``transform_batch`` makes of each."""
        batches = islice(self.feed.batches(stopping=lambda: self.stop.interrupted is not None), first, end)
        if self.transformer is None:
            yield from ((batch, batch.raw_batch) for batch in batches)
            return
        ahead: deque[EvaluationBatch] = deque()

        def raw_batches() -> Iterator[Any]:
            for batch in batches:
                ahead.append(batch)
                yield batch.raw_batch

        for transformed in self.transformer.apply(
            raw_batches(), Cursor(epoch=EVALUATION, rows=first * self.feed.batch_size)
        ):
            yield ahead.popleft(), transformed

    def _read(self, held: list[_UnreadResult], means: Means) -> None:
        for one in held:
            where = f"{self.method}, batch {one.number} of step {self.ctx.run_state.step},"
            weight = read_weight(one.result, where, rows=one.rows)
            metrics = read_metrics(one.result, where, name_of=evaluation_name(self.prefix))
            for part in {"", one.part}:
                means[part].add(metrics, weight)
        held.clear()


def _kept(result: Any) -> Any:
    """Return a result to be read behind later batches; without metrics as it is, to be refused."""
    metrics = getattr(result, "metrics", None)
    if not isinstance(metrics, Mapping):
        return result
    weight = kept(getattr(result, "weight", None))
    return StepResult(metrics={name: kept(value) for name, value in metrics.items()}, weight=weight)
