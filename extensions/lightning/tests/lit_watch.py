"""A Lightning callback that writes down what a training does."""

from typing import ClassVar

import attrs
import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import WeightAveraging


@attrs.define(eq=False, slots=False)
class Watch(pl.Callback):
    """Writes down what a training does: losses, learning rates, metrics, and the weights at the end."""

    losses: list[float] = attrs.field(factory=list)
    rates: list[list[float]] = attrs.field(factory=list)
    #: Whether a batch was the last of its epoch.
    lasts: list[bool] = attrs.field(factory=list)
    validated: list[dict[str, float]] = attrs.field(factory=list)
    weights: dict[str, torch.Tensor] = attrs.field(factory=dict)
    #: Epochs and steps at the end.
    place: tuple[int, int] = (0, 0)

    def state_dict(self):
        return {}  # what was seen stays, when the trainer goes back to a checkpoint

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.losses.append(float(outputs["loss"]) if outputs else float("nan"))
        self.lasts.append(trainer.is_last_batch)
        self.rates.append([group["lr"] for one in trainer.optimizers for group in one.param_groups])

    def on_validation_end(self, trainer, pl_module):
        self.validated.append({name: float(value) for name, value in trainer.callback_metrics.items()})

    def on_train_end(self, trainer, pl_module):
        self.weights = {name: value.clone() for name, value in pl_module.state_dict().items()}
        self.place = trainer.current_epoch, trainer.global_step
        WATCHED.append(self)


class Checked(pl.Callback):
    """Writes down what happens in the check before the training."""

    seen: ClassVar[list[tuple[str, bool, bool]]] = []

    def on_sanity_check_start(self, trainer, pl_module):
        self.seen.append(("start", trainer.sanity_checking, trainer.validating))

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append((f"batch {batch_idx}", trainer.sanity_checking, trainer.validating))

    def on_sanity_check_end(self, trainer, pl_module):
        self.seen.append(("end", trainer.sanity_checking, trainer.validating))

    def on_train_start(self, trainer, pl_module):
        self.seen.append(("train", trainer.sanity_checking, trainer.validating))


class CheckedLate(Checked):
    """Has a hook that comes with the first batch of the training here, and before the check in Lightning."""

    def on_fit_start(self, trainer, pl_module):
        self.seen.append(("fit", trainer.sanity_checking, trainer.validating))


class LateAverage(WeightAveraging):
    """Averages the weights of the ends of the later epochs, as SWA does."""

    def should_update(self, step_idx=None, epoch_idx=None):
        return epoch_idx is not None and epoch_idx >= 1


#: Those of trainings that came to their end; a run makes its callbacks itself.
WATCHED: list[Watch] = []
