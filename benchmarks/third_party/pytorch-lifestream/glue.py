"""CoLES over sequences of payments, of which each batch draws parts, as in the package's README."""

from functools import partial

import numpy as np
import torch
from ptls.data_load.datasets import MemoryMapDataset
from ptls.frames import PtlsDataModule
from ptls.frames.coles import ColesDataset, CoLESModule
from ptls.frames.coles.split_strategy import SampleSlices
from ptls.nn import RnnSeqEncoder, TrxEncoder


def payments(seed):
    draw = np.random.default_rng(seed)
    for length in draw.integers(30, 60, size=80).tolist():
        yield {
            "event_time": torch.arange(length),
            "shop": torch.from_numpy(draw.integers(1, 20, size=length)),
            "amount": torch.from_numpy(draw.normal(size=length)).float(),
        }


def data():
    def rows(seed):
        return ColesDataset(MemoryMapDataset(list(payments(seed))), SampleSlices(split_count=3, cnt_min=5, cnt_max=20))

    return PtlsDataModule(train_data=rows(1), train_batch_size=8, valid_data=rows(2), valid_batch_size=8)


def model():
    encoder = TrxEncoder(
        embeddings={"shop": {"in": 20, "out": 8}}, numeric_values={"amount": "identity"}, embeddings_noise=0.003
    )
    return CoLESModule(
        RnnSeqEncoder(encoder, hidden_size=16, type="gru"),
        optimizer_partial=partial(torch.optim.Adam, lr=0.01),
        lr_scheduler_partial=partial(torch.optim.lr_scheduler.StepLR, step_size=3, gamma=0.9),
    )
