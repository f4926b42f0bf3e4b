"""Trainers that do something wrong when they validate or generate."""

from pathlib import Path
from typing import Any

import attrs
import torch
from attrs import evolve
from reference_plugins.breaking import after, before, broken, given, having
from reference_plugins.trainer import SAMPLE_FILE, Batch, ReferenceTrainer, State
from torch import nn

from broken_trainers.training import with_metric
from hostcore_hookspecs import StepContext, StepResult


def _generate_nothing(self: ReferenceTrainer, state: State) -> dict[str, object]:
    return {"product": float(state.model(torch.tensor([[0.5, 0.5]])))}


broken(
    globals(),
    ReferenceTrainer,
    # Evaluates the averaged weights in the model, and does not put its own back.
    SwapsInTheAverage=before("validate_step", lambda state: state.model.load_state_dict(state.average)),
    # Reports the standard deviation of one row.
    MeasuresSpread=after(
        "validate_step",
        lambda result, prepared_batch, state: with_metric(result, spread=state.model(prepared_batch.numbers).std()),
    ),
    # Says that every batch has one row.
    WeighsAllAlike=after("validate_step", lambda result: evolve(result, weight=1)),
    # Reports a sum over the rows, which the host takes the mean of.
    SumsUp=after(
        "validate_step",
        lambda result, prepared_batch: with_metric(result, loss=result.metrics["loss"] * len(prepared_batch.product)),
    ),
    # Keeps the errors of one evaluation for the next.
    NeverBeginsAnew=given("evaluation_metrics", state=lambda state: evolve(state, errors=[*state.errors])),
    # Adds up the rows that a rank repeats.
    CountsRepeatedRows=before("validate_step", lambda ctx: setattr(ctx, "batch_counts", True)),
    # Writes a sample where it stands.
    SamplesBesideTheFolder=before("generate_sample", lambda: Path(SAMPLE_FILE).write_text("0.125\n")),
    # Returns a sample and does not write it.
    SamplesNothing=having(generate_sample=_generate_nothing),
    # Returns what is no JSON.
    ReturnsAPathOfASample=after(
        "generate_sample", lambda result, output_dir: {**result, "file": Path(output_dir) / SAMPLE_FILE}
    ),
)


class SamplesWithoutDropout(ReferenceTrainer):
    """Takes the dropout out to generate, and does not put it back."""

    def generate_sample(self, state: State, request: Any, output_dir: str, ctx: StepContext) -> Any:
        for module in state.model:
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return super().generate_sample(state, request, output_dir, ctx)


class SqueezesARow(ReferenceTrainer):
    """Squeezes the rows away, if there is one."""

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        predicted = state.model(prepared_batch.numbers).squeeze()
        error = torch.stack([(predicted[row] - one) ** 2 for row, one in enumerate(prepared_batch.product)])
        return StepResult(metrics={"loss": error.mean()}, weight=len(error))


@attrs.frozen
class Hidden:
    """A state in which the host finds no model, as it is held by a function."""

    parts: Any


def _shown(*methods: str) -> dict[str, Any]:
    """The methods of the reference, called with the state that is hidden in theirs."""
    shown: dict[str, Any] = {}
    for method in methods:
        shown.update(given(method, state=lambda state: state.parts())(ReferenceTrainer))
    return shown


_SHOWN = _shown("train_step", "evaluation_metrics", "generate_sample", "state_dict", "load_state_dict")
_SHOWN |= _shown("save_checkpoint", "load_checkpoint", "teardown")


class HidesTheModel(type("Showing", (ReferenceTrainer,), _SHOWN)):  # type: ignore[misc]
    """Keeps the model where the host does not find it, and switches to evaluation mode once and for all."""

    def configure(self, ctx: StepContext) -> Any:
        state = super().configure(ctx)
        return Hidden(lambda: state)

    def validate_step(self, prepared_batch: Batch, state: Any, ctx: StepContext) -> StepResult:
        state.parts().model.eval()
        return super().validate_step(prepared_batch, state.parts(), ctx)
