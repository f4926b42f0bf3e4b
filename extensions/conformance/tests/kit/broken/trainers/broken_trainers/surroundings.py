"""Trainers that do something to the process and the machine around them."""

import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reference_plugins.trainer import Batch, ReferenceTrainer, State
from torch import Tensor

from broken_trainers.training import Plain
from hostcore_hookspecs import StepContext, StepResult


class DrawsWithoutASeed(ReferenceTrainer):
    """Augments from a generator that nobody has seeded."""

    def prepare_batch(self, raw_batch: Mapping[str, np.ndarray], ctx: StepContext) -> Batch:
        batch = super().prepare_batch(raw_batch, ctx)
        batch.numbers.mul_(np.random.default_rng().normal(loc=1, scale=0.1))
        return batch


class SharesAClassAttribute(Plain):
    """Keeps a count that all runs of the process have in common."""

    steps: list[int] = []  # noqa: RUF012 - what is broken

    def loss(self, batch: Batch, state: State) -> Tensor:
        self.steps.append(1)
        return super().loss(batch, state) / len(self.steps)


class SeedsInConfigure(ReferenceTrainer):
    """Has a lucky number."""

    def configure(self, ctx: StepContext) -> State:
        torch.manual_seed(42)
        return super().configure(ctx)


class SeedsEveryStep(ReferenceTrainer):
    """Drops the same values at every step."""

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        torch.manual_seed(ctx.job.seed)
        return super().train_step(prepared_batch, state, ctx)


class SetsTheDefaultDtype(ReferenceTrainer):
    """Makes all new tensors of the process float64."""

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        result = super().train_step(prepared_batch, state, ctx)
        torch.set_default_dtype(torch.float64)
        return result


class HandlesSignals(ReferenceTrainer):
    """Takes SIGTERM for itself."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


class ReadsWhereItStands(ReferenceTrainer):
    """Takes a file of the working directory for its vocabulary."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        self._vocabulary = min(Path().iterdir())


class LogsWhereItStands(ReferenceTrainer):
    """Keeps a log in the working directory."""

    _LOG = Path("losses.log")

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        self._LOG.write_text("step,loss\n")

    def teardown(self, state: State) -> None:
        self._LOG.unlink()
        super().teardown(state)


class LeavesAThread(ReferenceTrainer):
    """Starts a thread that nobody ends."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        threading.Thread(target=threading.Event().wait, name="prefetch", daemon=True).start()


_open_files: list[Any] = []


class LeavesAFile(ReferenceTrainer):
    """Opens a file that nobody closes."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        _open_files.append(Path(__file__).open())  # noqa: SIM115 - what is broken
