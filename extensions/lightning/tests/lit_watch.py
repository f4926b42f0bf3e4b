"""A Lightning callback that writes down what a training does."""

import attrs
import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import WeightAveraging


@attrs.define(eq=False, slots=False)
class Watch(pl.Callback):
    """Writes down what a training does: losses, learning rates, metrics, and the weights at the end."""

    losses: list[float] = attrs.field(factory=list)
    rates: list[list[float]] = attrs.field(factory=list)
    validated: list[dict[str, float]] = attrs.field(factory=list)
    weights: dict[str, torch.Tensor] = attrs.field(factory=dict)
    #: Epochs and steps at the end.
    place: tuple[int, int] = (0, 0)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.losses.append(float(outputs["loss"]) if outputs else float("nan"))
        self.rates.append([group["lr"] for one in trainer.optimizers for group in one.param_groups])

    def on_validation_end(self, trainer, pl_module):
        self.validated.append({name: float(value) for name, value in trainer.callback_metrics.items()})

    def on_train_end(self, trainer, pl_module):
        self.weights = {name: value.clone() for name, value in pl_module.state_dict().items()}
        self.place = trainer.current_epoch, trainer.global_step
        WATCHED.append(self)


class LateAverage(WeightAveraging):
    """Averages the weights of the ends of the later epochs, as SWA does."""

    def should_update(self, step_idx=None, epoch_idx=None):
        return epoch_idx is not None and epoch_idx >= 1


#: Those of trainings that came to their end; a run makes its callbacks itself.
WATCHED: list[Watch] = []
