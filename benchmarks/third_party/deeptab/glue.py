"""A table for an MLP, whose ``fit`` has a Trainer of its own."""

import numpy as np
import pandas as pd
from caught import caught
from deeptab.models import MLPRegressor


def train():
    draw = np.random.default_rng(0)
    rows = pd.DataFrame(draw.normal(size=(200, 3)), columns=["a", "b", "c"])
    MLPRegressor().fit(rows, (rows["a"] * rows["b"]).to_numpy(), max_epochs=5, batch_size=16)


def model():
    return caught(train).module


def data():
    return caught(train).data
