"""Validations that tell something else, or leave their traces."""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from wave_gru.trainer import Batch, Classifier, State, WaveTrainer

from hostcore_hookspecs import StepContext, StepResult


class FixedBatchSizeInWeight(WaveTrainer):
    """Divides the sum of the losses by 16 rows, however many there are."""

    def validate_step(self, prepared_batch: Batch, state: State) -> StepResult:
        logits = state.average(prepared_batch.signals, prepared_batch.lengths)
        return StepResult(metrics={"loss": cross_entropy(logits, prepared_batch.labels, reduction="sum") / 16})


class Squeezes(WaveTrainer):
    """Squeezes away the rows as well, where there is one."""

    def validate_step(self, prepared_batch: Batch, state: State) -> StepResult:
        logits = state.average(prepared_batch.signals, prepared_batch.lengths).squeeze()
        accuracy = (logits.argmax(1) == prepared_batch.labels).float().mean()
        return StepResult(metrics={"loss": cross_entropy(logits, prepared_batch.labels), "accuracy": accuracy})


class NotANumberInValidation(WaveTrainer):
    """Takes the mean over rows of a class that the batch does not have."""

    def validate_step(self, prepared_batch: Batch, state: State) -> StepResult:
        result = super().validate_step(prepared_batch, state)
        rare = prepared_batch.labels[prepared_batch.labels > 2].float()
        return StepResult(metrics={**result.metrics, "rare": rare.mean()}, weight=result.weight)


class _Normalised(Classifier):
    """A classifier with batch normalisation."""

    def __init__(self, hyperparams: Any) -> None:
        super().__init__(hyperparams)
        self.conv = nn.Sequential(self.conv, nn.BatchNorm1d(hyperparams.hidden_size))


class TrainModeInValidation(WaveTrainer):
    """Calls train() in validate_step, so that batch normalisation learns from the validation."""

    def configure(self, ctx: StepContext) -> State:
        model = _Normalised(ctx.hyperparams).to(ctx.device)
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.98))
        optimizer = torch.optim.AdamW(model.parameters(), lr=ctx.hyperparams.learning_rate)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)
        return State(model=model, average=average, optimizer=optimizer, scheduler=scheduler)

    def validate_step(self, prepared_batch: Batch, state: State) -> StepResult:
        state.model.train()
        logits = state.model(prepared_batch.signals, prepared_batch.lengths)
        return StepResult(metrics={"loss": cross_entropy(logits, prepared_batch.labels)})


class AverageInValidation(WaveTrainer):
    """Updates the average where it is used."""

    def validate_step(self, prepared_batch: Batch, state: State) -> StepResult:
        state.average.update_parameters(state.model)
        return super().validate_step(prepared_batch, state)
