"""Water-like triples of atoms for TorchMD-Net's equivariant network."""

import sys
from unittest import mock

import lightning.pytorch as pl
import torch
from torch_geometric.data import Data as Atoms
from torch_geometric.loader import DataLoader
from torchmdnet.module import LNNP
from torchmdnet.scripts.train import get_args

SETTINGS = [
    "train", "--model", "tensornet", "--embedding-dimension", "8", "--num-layers", "1", "--num-rbf", "8",
    "--max-z", "10", "--y-weight", "1", "--neg-dy-weight", "0", "--derivative", "false", "--log-dir", "logs",
    "--lr-warmup-steps", "0",
]  # fmt: skip


def model():
    with mock.patch.object(sys, "argv", SETTINGS):
        return LNNP(vars(get_args()))


def molecules(count, seed):
    places = torch.randn(count, 3, 3, generator=torch.Generator().manual_seed(seed))
    return [Atoms(z=torch.tensor([8, 1, 1]), pos=one, y=one.norm().reshape(1, 1)) for one in places]


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(molecules(80, seed=0), batch_size=8)

    def val_dataloader(self):
        return DataLoader(molecules(16, seed=1), batch_size=8)
