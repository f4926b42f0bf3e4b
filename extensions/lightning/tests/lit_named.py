"""A module that is named as a class, by functions that make it, and as an instance; with objects as arguments."""

import torch
import user_modules
from torch import nn
from torch.nn.functional import cross_entropy


class Smoothed(nn.Module):
    def __init__(self, amount: float) -> None:
        super().__init__()
        self.amount = amount

    def forward(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(scores, y, label_smoothing=self.amount)


class Built(user_modules.Plain):
    def __init__(self, losses=(Smoothed(0.1),), activation=nn.Tanh) -> None:  # noqa: B008 - as users write it
        super().__init__()
        self.save_hyperparameters()
        self.losses = nn.ModuleList(losses)
        self.net[2] = activation()

    @classmethod
    def from_rows(cls, data: user_modules.Data) -> "Built":
        assert data.rows == 80
        return cls()

    def on_save_checkpoint(self, checkpoint):
        assert checkpoint["hyper_parameters"]["activation"] is nn.Tanh
        checkpoint["made_of"], checkpoint["name"] = {"losses": self.losses}, "built"

    def on_load_checkpoint(self, checkpoint):
        assert checkpoint["hyper_parameters"]["activation"] is nn.Tanh
        assert checkpoint["made_of"]["losses"] is self.losses
        assert checkpoint["name"] == "built"

    def training_step(self, batch):
        x, y = batch
        return sum(loss(self.net(x), y) for loss in self.losses)


def build() -> Built:
    return Built()


def build_data(rows: int) -> user_modules.Data:
    return user_modules.Data(rows=rows)


def build_nothing() -> int:
    return 3


INSTANCE = Built()
NUMBER = 3
