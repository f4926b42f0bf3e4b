"""Modules and callbacks that fail or are interrupted, once."""

import os
import signal
from typing import ClassVar

import lightning.pytorch as pl
from user_modules import Classifier, Tuned

from hostcore_hookspecs import hookimpl


class Fails:
    """Raises at steps, once each."""

    steps: ClassVar[set[int]] = set()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        super().on_train_batch_end(outputs, batch, batch_idx)
        step = self.trainer.current_epoch * 20 + batch_idx
        if step in Fails.steps:
            Fails.steps.remove(step)
            raise RuntimeError(f"failed at {step}")


class FailsTuned(Fails, Tuned):
    pass


class Interrupted(Classifier):
    """Its process is asked to stop in a validation, once."""

    epochs: ClassVar[set[int]] = set()

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        if self.current_epoch in self.epochs:
            self.epochs.remove(self.current_epoch)
            os.kill(os.getpid(), signal.SIGTERM)


class FailsTest(Classifier):
    """The test at the end is interrupted, once."""

    times: ClassVar[list[int]] = []

    def test_step(self, batch, batch_idx):
        super().test_step(batch, batch_idx)
        if self.times:
            self.times.clear()
            os.kill(os.getpid(), signal.SIGTERM)


class Back:
    """A hostcore callback that has the trainer go back, once."""

    CHANGES_TRAINING = True

    @hookimpl
    def on_batch_end(self, run_state, ctx):
        if run_state.step == 33:
            ctx.request_restore(16, "to try it")


class Told(pl.Callback):
    """Writes down errors."""

    errors: ClassVar[list[str]] = []

    def on_exception(self, trainer, pl_module, exception):
        self.errors.append(str(exception))


class Kept(Classifier):
    def on_before_zero_grad(self, optimizer):
        self.log("lr", optimizer.param_groups[0]["lr"], on_step=True, on_epoch=True, reduce_fx="max")
