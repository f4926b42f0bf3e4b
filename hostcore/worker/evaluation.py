"""A validation or a test: all of its data, once; means of what the trainer reports for batches, and its own metrics."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs

from hostcore.events.codec import finite
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

#: Results are read in groups: few enough to hold, many enough for a GPU not to wait at every batch.
_RESULTS_HELD: Final = 64


@attrs.frozen(kw_only=True)
class Evaluated:
    """What an evaluation has found."""

    #: Means over the data, and what ``evaluation_metrics`` found; by recorded name.
    metrics: dict[str, float]
    #: Samples or tokens behind them.
    weight: float
    #: Names that some of the ranks have not reported.
    missing: list[str]

    def content(self) -> dict[str, Any]:
        """As the ``validation`` and ``test`` events have it: what is not finite is null, and named."""
        values, nonfinite = finite(self.metrics)
        return {"metrics": values, "nonfinite": nonfinite, "weight": self.weight}


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
class Evaluation:
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
    #: Called now and then: shows that the run goes on.
    alive: Callable[[], None]

    def run(self) -> Evaluated | None:
        """Evaluate; None when the run is to stop before the end."""
        means = WeightedMeans()
        with (
            _split(self.ctx, self.split),
            evaluating(self.state, seed=self.ctx.job.seed, step=self.ctx.run_state.step, rank=self.ctx.rank),
        ):
            if not self._score(means):
                return None
            self.meeting.meet()  # a rank may have left its data early
            if self.stop.interrupted is not None:
                return None
            found = self._found()
        gathered = self.ranks.gather((means.totals(), means.weight))
        metrics, missing = mean_over_ranks([totals for totals, _ in gathered])
        self._require_apart(metrics, found)
        return Evaluated(metrics={**metrics, **found}, weight=sum(weight for _, weight in gathered), missing=missing)

    def _score(self, means: WeightedMeans) -> bool:
        """Have the trainer score all batches; False when the run is to stop before the last."""
        held: list[tuple[int, int, Any]] = []
        for number, (batch, raw_batch) in enumerate(self._batches()):
            self.ctx.batch_index, self.ctx.batch_counts = number, batch.counts
            result = self.step(self.prepare_batch(raw_batch, self.state, self.ctx), self.state, self.ctx)
            if batch.counts:
                held.append((number, batch.raw_batch.num_rows, _kept(result)))
            if len(held) >= _RESULTS_HELD:
                self._read(held, means)
            self.alive()
            self.meeting.beat()
            if self.stop.interrupted is not None:
                return False
        self._read(held, means)
        return True

    def _found(self) -> dict[str, float]:
        """What the trainer's ``evaluation_metrics`` returns on the first rank, by recorded name; on every rank."""
        if self.evaluation_metrics is None:
            return {}
        found = self.evaluation_metrics(self.state, self.ctx)
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

    def _batches(self) -> Iterator[tuple[EvaluationBatch, Any]]:
        """The batches, and what ``transform_batch`` makes of each."""
        batches = self.feed.batches(stopping=lambda: self.stop.interrupted is not None)
        if self.transformer is None:
            yield from ((batch, batch.raw_batch) for batch in batches)
            return
        ahead: deque[EvaluationBatch] = deque()

        def raw_batches() -> Iterator[Any]:
            for batch in batches:
                ahead.append(batch)
                yield batch.raw_batch

        for transformed in self.transformer.apply(raw_batches(), Cursor(epoch=EVALUATION)):
            yield ahead.popleft(), transformed

    def _read(self, held: list[tuple[int, int, Any]], means: WeightedMeans) -> None:
        for number, rows, result in held:
            where = f"{self.method}, batch {number} of step {self.ctx.run_state.step},"
            weight = read_weight(result, where, rows=rows)
            means.add(read_metrics(result, where, name_of=evaluation_name(self.prefix)), weight)
        held.clear()


def _kept(result: Any) -> Any:
    """Return a result to be read behind later batches; without metrics as it is, to be refused."""
    metrics = getattr(result, "metrics", None)
    if not isinstance(metrics, Mapping):
        return result
    weight = kept(getattr(result, "weight", None))
    return StepResult(metrics={name: kept(value) for name, value in metrics.items()}, weight=weight)
