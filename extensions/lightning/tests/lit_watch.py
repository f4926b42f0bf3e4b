"""A Lightning callback that writes down what a training does."""

import attrs
import lightning.pytorch as pl
import torch


@attrs.define(eq=False, slots=False)
class Watch(pl.Callback):
    """Writes down what a training does: losses, learning rates, metrics, and the weights at the end."""

    losses: list[float] = attrs.field(factory=list)
    rates: list[list[float]] = attrs.field(factory=list)
    validated: list[dict[str, float]] = attrs.field(factory=list)
    weights: dict[str, torch.Tensor] = attrs.field(factory=dict)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.losses.append(float(outputs["loss"]) if outputs else float("nan"))
        self.rates.append([group["lr"] for one in trainer.optimizers for group in one.param_groups])

    def on_validation_end(self, trainer, pl_module):
        self.validated.append({name: float(value) for name, value in trainer.callback_metrics.items()})

    def on_train_end(self, trainer, pl_module):
        self.weights = {name: value.clone() for name, value in pl_module.state_dict().items()}
        WATCHED.append(self)


#: Those of trainings that came to their end; a run makes its callbacks itself.
WATCHED: list[Watch] = []
