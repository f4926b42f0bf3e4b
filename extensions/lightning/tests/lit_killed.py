"""Modules whose process is killed at some steps, once each."""

import os
import signal
from pathlib import Path
from typing import ClassVar

import lightning.pytorch as pl
from user_modules import ByHand, Classifier, Hooked, Synced, Tuned

from hostcore_hookspecs import hookimpl


class _Killed:
    #: Right before and behind an epoch's end, in its middle, and at the first step of an epoch.
    steps = (5, 19, 20, 33, 41)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        super().on_train_batch_end(outputs, batch, batch_idx)
        step = self.trainer.current_epoch * 20 + batch_idx
        marks = Path(os.environ["KILL_MARKS"]) if "KILL_MARKS" in os.environ else None
        if marks is not None and step in self.steps and not (marks / str(step)).exists():
            (marks / str(step)).touch()
            os.kill(os.getpid(), signal.SIGKILL)


class _Fails:
    """Raises at steps, once each."""

    steps: ClassVar[set[int]] = set()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        super().on_train_batch_end(outputs, batch, batch_idx)
        step = self.trainer.current_epoch * 20 + batch_idx
        if step in _Fails.steps:
            _Fails.steps.remove(step)
            raise RuntimeError(f"failed at {step}")


class FailsTuned(_Fails, Tuned):
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


class Kept(_Killed, Classifier):
    def on_before_zero_grad(self, optimizer):
        self.log("lr", optimizer.param_groups[0]["lr"], on_step=True, on_epoch=True, reduce_fx="max")


class KeptByHand(_Killed, ByHand):
    pass


class KeptHooked(_Killed, Hooked):
    pass


class KeptSynced(_Killed, Synced):
    """Of several ranks, the one that comes first is killed."""
