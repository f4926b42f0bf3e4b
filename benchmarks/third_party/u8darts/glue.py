"""A noisy sine wave for N-BEATS, whose ``fit`` has a Trainer of its own."""

import numpy as np
from caught import caught
from darts import TimeSeries
from darts.models import NBEATSModel


def train():
    wave = np.sin(np.arange(103) / 5) + np.random.default_rng(0).normal(0, 0.1, 103)
    NBEATSModel(
        input_chunk_length=12,
        output_chunk_length=4,
        num_stacks=2,
        num_blocks=1,
        layer_widths=16,
        batch_size=8,
        random_state=1,
    ).fit(TimeSeries.from_values(wave.astype(np.float32)))


def model():
    return caught(train).module


def data():
    return caught(train).data
