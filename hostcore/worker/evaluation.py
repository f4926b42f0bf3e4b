"""A validation or a test: all of its data, once, and the weighted means of what the trainer reports."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from hostcore.events.codec import finite
from hostcore.worker.feed.evaluation import EvaluationBatch, EvaluationFeed
from hostcore.worker.feed.feed import Cursor
from hostcore.worker.feed.transform import Transformer
from hostcore.worker.metrics import WeightedMeans, evaluation_name, mean_over_ranks, read_metrics, read_weight
from hostcore.worker.modes import evaluating
from hostcore.worker.ranks.protocol import Meeting, Ranks
from hostcore.worker.stop import StopSwitch
from hostcore_hookspecs.context import StepContext

Call = Callable[..., Any]

#: Results are read in groups: few enough to hold, many enough for a GPU not to wait at every batch.
_RESULTS_HELD: Final = 64
#: The epoch that ``transform_batch`` draws its random numbers for: no epoch of the training.
EPOCH: Final = 2**32


@attrs.frozen(kw_only=True)
class Evaluated:
    """What an evaluation has found."""

    #: Means over the data, by recorded name.
    metrics: dict[str, float]
    #: Samples or tokens behind them.
    weight: float
    #: Names that some of the ranks have not reported.
    missing: list[str]

    def content(self) -> dict[str, Any]:
        """As the ``validation`` and ``test`` events have it: what is not finite is null, and named."""
        values, nonfinite = finite(self.metrics)
        return {"metrics": values, "nonfinite": nonfinite, "weight": self.weight}


@attrs.frozen(kw_only=True, eq=False)
class Evaluation:
    """Runs the trainer's ``validate_step`` or ``test_step`` over a feed."""

    #: ``val`` or ``test``: what metric names without a slash begin with.
    prefix: str
    feed: EvaluationFeed
    transformer: Transformer | None
    prepare_batch: Call
    #: The trainer's method, and its name.
    step: Call
    method: str
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
        means, held = WeightedMeans(), []
        with evaluating(self.state, seed=self.ctx.job.seed, step=self.ctx.run_state.step, rank=self.ctx.rank):
            for number, (batch, raw_batch) in enumerate(self._batches()):
                result = self.step(self.prepare_batch(raw_batch, self.state, self.ctx), self.state, self.ctx)
                if batch.counts:
                    held.append((number, batch.raw_batch.num_rows, result))
                if len(held) >= _RESULTS_HELD:
                    self._read(held, means)
                self.alive()
                self.meeting.beat()
                if self.stop.interrupted is not None:
                    return None
            self._read(held, means)
        self.meeting.meet()  # a rank may have left its data early
        if self.stop.interrupted is not None:
            return None
        weighed = means.totals()
        gathered = self.ranks.gather(weighed)
        metrics, missing = mean_over_ranks(gathered)
        weight = sum(max((weight for _, weight in one.values()), default=0.0) for one in gathered)
        return Evaluated(metrics=metrics, weight=weight, missing=missing)

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

        for transformed in self.transformer.apply(raw_batches(), Cursor(epoch=EPOCH, rows=self.feed.first_row)):
            yield ahead.popleft(), transformed

    def _read(self, held: list[tuple[int, int, Any]], means: WeightedMeans) -> None:
        for number, rows, result in held:
            where = f"{self.method}, batch {number} of step {self.ctx.run_state.step},"
            weight = read_weight(result, where, rows=rows)
            means.add(read_metrics(result, where, name_of=evaluation_name(self.prefix)), weight)
        held.clear()
