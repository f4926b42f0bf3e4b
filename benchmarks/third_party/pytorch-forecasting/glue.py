"""Eight noisy sine waves for a temporal fusion transformer."""

import lightning.pytorch as pl
import numpy as np
import pandas as pd
from pytorch_forecasting import TimeSeriesDataSet


def rows():
    draw = np.random.default_rng(0)
    waves = [
        pd.DataFrame(
            {"series": str(one), "t": range(60), "y": np.sin(np.arange(60) / 5 + one) + draw.normal(0, 0.1, 60)}
        )
        for one in range(8)
    ]
    return TimeSeriesDataSet(
        pd.concat(waves, ignore_index=True),
        time_idx="t",
        target="y",
        group_ids=["series"],
        max_encoder_length=12,
        max_prediction_length=4,
        time_varying_unknown_reals=["y"],
    )


class Data(pl.LightningDataModule):
    def setup(self, stage):
        self.rows = rows()

    def train_dataloader(self):
        return self.rows.to_dataloader(train=True, batch_size=16, num_workers=0)
