"""A regression with dropout, which is on when it predicts."""

from functools import partial

import lightning.pytorch as pl
import torch
from lightning_uq_box.uq_methods import MCDropoutRegression
from torch.utils.data import DataLoader, Dataset


def model():
    network = torch.nn.Sequential(
        torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
    )
    return MCDropoutRegression(
        network, num_mc_samples=4, loss_fn=torch.nn.MSELoss(), optimizer=partial(torch.optim.Adam, lr=0.01)
    )


class Rows(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        return {"input": torch.randn(3, generator=draw), "target": torch.randn(1, generator=draw)}


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Rows(), batch_size=8)
