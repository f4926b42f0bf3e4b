"""A table for a category embedding model, whose ``fit`` has a Trainer of its own."""

import numpy as np
import pandas as pd
from caught import caught
from pytorch_tabular import TabularModel
from pytorch_tabular.config import DataConfig, OptimizerConfig, TrainerConfig
from pytorch_tabular.models import CategoryEmbeddingModelConfig


def train():
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=["a", "b", "c"])
    rows["y"] = rows["a"] * rows["b"]
    TabularModel(
        data_config=DataConfig(target=["y"], continuous_cols=["a", "b", "c"]),
        model_config=CategoryEmbeddingModelConfig(task="regression", layers="16-8"),
        optimizer_config=OptimizerConfig(),
        trainer_config=TrainerConfig(batch_size=16, max_epochs=5, accelerator="cpu", progress_bar="none"),
        verbose=False,
    ).fit(train=rows, seed=1)


def model():
    return caught(train).module


def data():
    return caught(train).data
