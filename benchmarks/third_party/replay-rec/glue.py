"""SASRec over sequences of purchases, in the package's own module."""

import lightning.pytorch as pl
import torch
from replay.data import FeatureHint, FeatureSource, FeatureType
from replay.data.nn import TensorFeatureInfo, TensorFeatureSource, TensorSchema
from replay.nn.lightning import LightningModule
from replay.nn.lightning.optimizer import OptimizerFactory
from replay.nn.lightning.scheduler import LambdaLRSchedulerFactory
from replay.nn.sequential import SasRec
from torch.utils.data import DataLoader, Dataset

ITEMS, LENGTH = 40, 12


class Purchases(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        bought = torch.randint(ITEMS, (LENGTH + 1,), generator=draw)
        is_there = torch.arange(LENGTH) >= index % 5  # shorter ones begin with what stands for nothing
        return {
            "feature_tensors": {"item_id": torch.where(is_there, bought[:-1], ITEMS)},
            "padding_mask": is_there,
            "positive_labels": bought[1:, None],
            "negative_labels": bought[:1],
            "target_padding_mask": is_there[:, None],
        }


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Purchases(), batch_size=8, shuffle=True)


def model():
    item = TensorFeatureInfo(
        "item_id",
        FeatureType.CATEGORICAL,
        is_seq=True,
        feature_hint=FeatureHint.ITEM_ID,
        feature_sources=[TensorFeatureSource(FeatureSource.INTERACTIONS, "item_id")],
        cardinality=ITEMS,
        padding_value=ITEMS,
        embedding_dim=16,
    )
    network = SasRec.from_params(
        TensorSchema([item]), embedding_dim=16, num_heads=2, num_blocks=1, max_sequence_length=LENGTH, dropout=0.2
    )
    return LightningModule(network, OptimizerFactory(learning_rate=0.01), LambdaLRSchedulerFactory(warmup_steps=10))
