"""Noise in two voices for a small ConvTasNet."""

import torch
from asteroid.engine import System
from asteroid.losses import PITLossWrapper, pairwise_neg_sisdr
from asteroid.models import ConvTasNet
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, index):
        voices = torch.randn(2, 800, generator=torch.Generator().manual_seed(index))
        return voices.sum(0), voices


def model():
    network = ConvTasNet(2, n_filters=16, n_blocks=2, n_repeats=1, bn_chan=8, hid_chan=8, skip_chan=8, kernel_size=16)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.001)
    loss = PITLossWrapper(pairwise_neg_sisdr, pit_from="pw_mtx")
    return System(network, optimizer, loss, DataLoader(Rows(), batch_size=4))
