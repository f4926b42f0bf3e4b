"""A module of a package that imports the former names of Lightning."""

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities import move_data_to_device
from pytorch_lightning.callbacks.early_stopping import EarlyStopping
from pytorch_lightning.utilities.types import STEP_OUTPUT
from torch import nn
from torch.nn.functional import cross_entropy


class Former(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))

    def training_step(self, batch) -> STEP_OUTPUT:
        x, y = move_data_to_device(batch, self.device)
        loss = cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_callbacks(self):
        return [EarlyStopping("train_loss", patience=100)]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class FormerData(pl.LightningDataModule):
    def train_dataloader(self):
        x = torch.randn(160, 4, generator=torch.Generator().manual_seed(3))
        rows = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
        return torch.utils.data.DataLoader(rows, batch_size=8, generator=torch.Generator())
