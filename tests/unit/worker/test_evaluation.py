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
    first_row = 0

    def batches(self, *, stopping: Callable[[], bool]) -> Iterator[EvaluationBatch]:
        for value, counts in self.given:
            yield EvaluationBatch(pa.record_batch({"x": [value]}), counts)


def test_a_batch_that_is_only_there_for_other_ranks_is_evaluated_and_does_not_count() -> None:
    seen: list[int] = []

    def step(batch: pa.RecordBatch, state: object, ctx: StepContext) -> StepResult:
        seen.append(batch["x"][0].as_py())
        return StepResult(metrics={"x": seen[-1]})

    evaluation = Evaluation(
        prefix="val",
        feed=Feed([(1, True), (3, True), (3, False)]),  # type: ignore[arg-type]
        transformer=None,
        prepare_batch=lambda raw_batch, state, ctx: raw_batch,
        step=step,
        method="validate_step",
        state=None,
        ctx=StepContext(),
        ranks=OneRank(),
        meeting=NoMeeting(),
        stop=StopSwitch(),
        alive=lambda: None,
    )
    evaluated = evaluation.run()
    assert evaluated is not None
    assert seen == [1, 3, 3]
    assert (evaluated.metrics, evaluated.weight) == ({"val/x": 2.0}, 2.0)
