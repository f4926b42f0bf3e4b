"""Noisy sine waves for DeepAR, whose estimator has a Trainer of its own."""

import numpy as np
from caught import caught
from gluonts.dataset.common import ListDataset
from gluonts.torch import DeepAREstimator


def train():
    draw = np.random.default_rng(0)
    waves = [
        {"start": "2020-01-01", "target": np.sin(np.arange(60) / 5 + one) + draw.normal(0, 0.1, 60)} for one in range(8)
    ]
    DeepAREstimator(
        freq="D",
        prediction_length=4,
        context_length=12,
        hidden_size=8,
        batch_size=8,
        lags_seq=[1, 2, 3],
        num_batches_per_epoch=10,
    ).train(ListDataset(waves, freq="D"))


def model():
    return caught(train).module


def data():
    return caught(train).data
