"""What of an evaluation counts."""

from collections.abc import Callable, Iterator

import attrs
import pyarrow as pa

from hostcore.worker.evaluation import Evaluation
from hostcore.worker.feed.evaluation import EvaluationBatch
from hostcore.worker.ranks.one import NoMeeting, OneRank
from hostcore.worker.stop import StopSwitch
from hostcore_hookspecs import StepContext, StepResult


@attrs.frozen
class Feed:
    """Batches of one number each, and whether they count."""

    given: list[tuple[int, bool]]

    def batches(self, *, stopping: Callable[[], bool]) -> Iterator[EvaluationBatch]:
        for value, counts in self.given:
            yield EvaluationBatch(pa.record_batch({"x": [value]}), counts)


def test_a_batch_that_is_only_there_for_other_ranks_is_evaluated_and_is_said_not_to_count() -> None:
    seen: list[tuple[int, bool]] = []
    ctx = StepContext()

    def step(batch: pa.RecordBatch, state: object, ctx: StepContext) -> StepResult:
        seen.append((batch["x"][0].as_py(), ctx.batch_counts))
        return StepResult(metrics={"x": seen[-1][0]})

    evaluation = Evaluation(
        split="validation",
        prefix="val",
        feed=Feed([(1, True), (3, True), (3, False)]),  # type: ignore[arg-type]
        transformer=None,
        prepare_batch=lambda raw_batch, state, ctx: raw_batch,
        step=step,
        method="validate_step",
        state=None,
        ctx=ctx,
        ranks=OneRank(),
        meeting=NoMeeting(),
        stop=StopSwitch(),
        alive=lambda: None,
        too_few=print,
    )
    evaluated = evaluation.run()
    assert evaluated is not None
    assert seen == [(1, True), (3, True), (3, False)]
    assert ctx.batch_counts
    assert (evaluated.metrics, evaluated.weight) == ({"val/x": 2.0}, 2.0)
