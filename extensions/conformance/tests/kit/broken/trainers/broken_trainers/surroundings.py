"""Trainers that do something to the process and the machine around them."""

import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reference_plugins.breaking import before, broken, then
from reference_plugins.trainer import Batch, ReferenceTrainer, State
from torch import Tensor

from broken_trainers.training import Plain
from hostcore_hookspecs import StepContext

_open_files: list[Any] = []

broken(
    globals(),
    ReferenceTrainer,
    # Augments from a generator that nobody has seeded.
    DrawsWithoutASeed=then(
        "prepare_batch", lambda result: result.numbers.mul_(np.random.default_rng().normal(loc=1, scale=0.1))
    ),
    # Has a lucky number.
    SeedsInConfigure=before("configure", lambda: torch.manual_seed(42)),
    # Drops the same values at every step.
    SeedsEveryStep=before("train_step", lambda ctx: torch.manual_seed(ctx.job.seed)),
    # Makes all new tensors of the process float64.
    SetsTheDefaultDtype=then("train_step", lambda: torch.set_default_dtype(torch.float64)),
    # Takes SIGTERM for itself.
    HandlesSignals=then("setup", lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)),
    # Takes a file of the working directory for its vocabulary.
    ReadsWhereItStands=then("setup", lambda: min(Path().iterdir())),
    # Starts a thread that nobody ends, and opens a file that nobody closes.
    LeavesAThread=then(
        "setup", lambda: threading.Thread(target=threading.Event().wait, name="prefetch", daemon=True).start()
    ),
    LeavesAFile=then("setup", lambda: _open_files.append(Path(__file__).open())),  # noqa: SIM115
)


class SharesAClassAttribute(Plain):
    """Keeps a count that all runs of the process have in common."""

    steps: list[int] = []  # noqa: RUF012 - what is broken

    def loss(self, batch: Batch, state: State) -> Tensor:
        self.steps.append(1)
        return super().loss(batch, state) / len(self.steps)


class LogsWhereItStands(ReferenceTrainer):
    """Keeps a log in the working directory."""

    _LOG = Path("losses.log")

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        self._LOG.write_text("step,loss\n")

    def teardown(self, state: State) -> None:
        self._LOG.unlink()
        super().teardown(state)
