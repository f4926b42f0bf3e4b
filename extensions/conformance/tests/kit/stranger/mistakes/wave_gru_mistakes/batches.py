"""What is done to the rows, and where they are put."""

from typing import Any

import attrs
import numpy as np
import torch
from wave_gru.trainer import Batch, State, WaveTrainer

from hostcore_hookspecs import StepContext
from hostcore_toolkit import to_tensors


class OwnGenerator(WaveTrainer):
    """Augments with a generator on self, which begins anew after a resume."""

    def configure(self, ctx: StepContext) -> State:
        self.rng = np.random.default_rng(ctx.job.seed)
        return super().configure(ctx)

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Batch:
        batch = super().prepare_batch(raw_batch, ctx)
        noise = torch.from_numpy(self.rng.normal(0, 0.1, tuple(batch.signals.shape))).float().to(ctx.device)
        return attrs.evolve(batch, signals=batch.signals + noise)


class BatchInPlace(WaveTrainer):
    """Merges two classes by writing into the rows."""

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Batch:
        labels = to_tensors(raw_batch, [ctx.hyperparams.label])[ctx.hyperparams.label]
        labels.clamp_(max=1)
        return super().prepare_batch(raw_batch, ctx)


class IgnoresDevice(WaveTrainer):
    """Leaves the model where it was made."""

    def configure(self, ctx: StepContext) -> State:
        state = super().configure(StepContext(hyperparams=ctx.hyperparams, job=ctx.job, device="cpu"))
        ctx.register_optimizer(state.optimizer, state.scheduler)
        return state


class IgnoresDeviceInBatch(WaveTrainer):
    """Leaves the batch where it was read."""

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Batch:
        batch = super().prepare_batch(raw_batch, StepContext(hyperparams=ctx.hyperparams, device="cpu"))
        return attrs.evolve(batch, signals=batch.signals * 2)
