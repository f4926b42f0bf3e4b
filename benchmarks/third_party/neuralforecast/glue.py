"""Noisy sine waves for NHITS."""

import numpy as np
import pandas as pd
from neuralforecast.models import NHITS
from neuralforecast.tsdataset import TimeSeriesDataModule, TimeSeriesDataset


def model():
    return NHITS(h=4, input_size=12, windows_batch_size=32, mlp_units=[[16, 16]] * 3)


def data():
    draw = np.random.default_rng(0)
    waves = [
        pd.DataFrame(
            {"unique_id": str(one), "ds": range(60), "y": np.sin(np.arange(60) / 5 + one) + draw.normal(0, 0.1, 60)}
        )
        for one in range(32)
    ]
    return TimeSeriesDataModule(
        dataset=TimeSeriesDataset.from_df(pd.concat(waves))[0], batch_size=8, valid_batch_size=8
    )
