"""The LightningModule of ``replay_proof.py``: nothing in it knows of hostcore."""

from typing import Any

import lightning.pytorch as pl
import torch
import torchmetrics
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


class Points(pl.LightningDataModule):
    """Points of two classes, shuffled."""

    def setup(self, stage: str) -> None:
        x = torch.randn(2_000, 4, generator=torch.Generator().manual_seed(3))
        self.rows = TensorDataset(x, (x.sum(1) > 0).long())

    def train_dataloader(self) -> Any:
        return DataLoader(self.rows, batch_size=16, shuffle=True)


class Classifier(pl.LightningModule):
    """Dropout, batch normalisation, a metric that is no mean, a schedule by step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 2))
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=2)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        scores = self.net(x)
        loss = cross_entropy(scores, y)
        self.accuracy(scores, y)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        self.log("train_acc", self.accuracy, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=400)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]
