"""Trainers that do something wrong when they validate or generate."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from reference_plugins.trainer import SAMPLE_FILE, Batch, ReferenceTrainer, State
from torch import nn

from hostcore_hookspecs import SampleRequest, StepContext, StepResult


class SwapsInTheAverage(ReferenceTrainer):
    """Evaluates the averaged weights in the model, and does not put its own back."""

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        state.model.load_state_dict(state.average)
        return super().validate_step(prepared_batch, state, ctx)


class SamplesWithoutDropout(ReferenceTrainer):
    """Takes the dropout out to generate, and does not put it back."""

    def generate_sample(
        self, state: State, request: SampleRequest, output_dir: str, ctx: StepContext
    ) -> Mapping[str, object]:
        for module in state.model:
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return super().generate_sample(state, request, output_dir, ctx)


@attrs.frozen
class Hidden:
    """A state in which the host finds no model, as it is held by a function."""

    parts: Any


class HidesTheModel(ReferenceTrainer):
    """Keeps the model where the host does not find it, and switches to evaluation mode once and for all."""

    def configure(self, ctx: StepContext) -> Any:
        state = super().configure(ctx)
        return Hidden(lambda: state)

    def train_step(self, prepared_batch: Any, state: Any, ctx: StepContext) -> StepResult:
        return super().train_step(prepared_batch, state.parts(), ctx)

    def validate_step(self, prepared_batch: Batch, state: Any, ctx: StepContext) -> StepResult:
        state.parts().model.eval()
        return super().validate_step(prepared_batch, state.parts(), ctx)

    def test_step(self, prepared_batch: Batch, state: Any, ctx: StepContext) -> StepResult:
        return self.validate_step(prepared_batch, state, ctx)

    def evaluation_metrics(self, state: Any, ctx: StepContext) -> Any:
        return super().evaluation_metrics(state.parts(), ctx)

    def generate_sample(
        self, state: Any, request: SampleRequest, output_dir: str, ctx: StepContext
    ) -> Mapping[str, object]:
        return super().generate_sample(state.parts(), request, output_dir, ctx)

    def state_dict(self, state: Any) -> dict[str, object]:
        return super().state_dict(state.parts())

    def load_state_dict(self, state: Any, payload: dict[str, Any]) -> None:
        super().load_state_dict(state.parts(), payload)

    def save_checkpoint(self, state: Any, output_dir: str, ctx: StepContext) -> Mapping[str, object]:
        return super().save_checkpoint(state.parts(), output_dir, ctx)

    def load_checkpoint(self, state: Any, checkpoint_dir: str, ctx: StepContext) -> None:
        super().load_checkpoint(state.parts(), checkpoint_dir, ctx)

    def teardown(self, state: Any) -> None:
        super().teardown(state.parts())


class SqueezesARow(ReferenceTrainer):
    """Squeezes the rows away, if there is one."""

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        predicted = state.model(prepared_batch.numbers).squeeze()
        error = torch.stack([(predicted[row] - one) ** 2 for row, one in enumerate(prepared_batch.product)])
        return StepResult(metrics={"loss": error.mean()}, weight=len(error))


class MeasuresSpread(ReferenceTrainer):
    """Reports the standard deviation of one row."""

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        result = super().validate_step(prepared_batch, state, ctx)
        spread = state.model(prepared_batch.numbers).std()
        return attrs.evolve(result, metrics={**result.metrics, "spread": spread})


class WeighsAllAlike(ReferenceTrainer):
    """Says that every batch has one row."""

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        return attrs.evolve(super().validate_step(prepared_batch, state, ctx), weight=1)


class SumsUp(ReferenceTrainer):
    """Reports a sum over the rows, which the host takes the mean of."""

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        result = super().validate_step(prepared_batch, state, ctx)
        return attrs.evolve(result, metrics={"loss": result.metrics["loss"] * len(prepared_batch.product)})


class NeverBeginsAnew(ReferenceTrainer):
    """Keeps the errors of one evaluation for the next."""

    def evaluation_metrics(self, state: State, ctx: StepContext) -> Any:
        return super().evaluation_metrics(attrs.evolve(state, errors=[*state.errors]), ctx)


class CountsRepeatedRows(ReferenceTrainer):
    """Adds up the rows that a rank repeats."""

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        ctx.batch_counts = True
        return super().validate_step(prepared_batch, state, ctx)


class SamplesBesideTheFolder(ReferenceTrainer):
    """Writes a sample where it stands."""

    def generate_sample(
        self, state: State, request: SampleRequest, output_dir: str, ctx: StepContext
    ) -> Mapping[str, object]:
        Path(SAMPLE_FILE).write_text("0.125\n")
        return super().generate_sample(state, request, output_dir, ctx)


class SamplesNothing(ReferenceTrainer):
    """Returns a sample and does not write it."""

    def generate_sample(self, state: State) -> Mapping[str, object]:  # type: ignore[override]
        return {"product": float(state.model(torch.tensor([[0.5, 0.5]])))}


class ReturnsAPathOfASample(ReferenceTrainer):
    """Returns what is no JSON."""

    def generate_sample(
        self, state: State, request: SampleRequest, output_dir: str, ctx: StepContext
    ) -> Mapping[str, object]:
        told = super().generate_sample(state, request, output_dir, ctx)
        return {**told, "file": Path(output_dir) / SAMPLE_FILE}
