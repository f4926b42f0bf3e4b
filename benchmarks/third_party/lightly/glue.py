"""A linear classifier over a network, as lightly's benchmarks train one."""

import lightning.pytorch as pl
import torch
from lightly.utils.benchmarking import LinearClassifier
from torch.utils.data import DataLoader, Dataset


def model():
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 16), torch.nn.Tanh())
    return LinearClassifier(network, batch_size_per_device=8, feature_dim=16, num_classes=4, topk=(1, 2))


class Rows(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        return torch.randn(3, 4, 4, generator=draw), index % 4, str(index)


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Rows(), batch_size=8)
