"""What is left behind in the process."""

from typing import Any

import torch
from wave_gru.trainer import State, WaveTrainer

from hostcore_hookspecs import StepResult


class SeedInStep(WaveTrainer):
    """Seeds torch in every step: dropout drops the same each time."""

    def train_step(self, prepared_batch: Any, state: State) -> StepResult:
        torch.manual_seed(0)
        return super().train_step(prepared_batch, state)


class DetectsAnomalies(WaveTrainer):
    """Leaves a debugging aid of torch on."""

    def setup(self) -> None:
        torch.autograd.set_detect_anomaly(True)
