"""A message passing network that counts the characters of molecules."""

import lightning.pytorch as pl
from chemprop import data, featurizers, models, nn

MOLECULES = ["CC", "CCO", "CCC", "CCN", "c1ccccc1", "CCCl", "CC(=O)O", "CCOC", "CNC", "OCC", "CCCC", "CCCN"] * 6


def model():
    predictor = nn.RegressionFFN(input_dim=16, hidden_dim=16)
    return models.MPNN(nn.BondMessagePassing(d_h=16), nn.MeanAggregation(), predictor)


class Data(pl.LightningDataModule):
    def setup(self, stage):
        points = [data.MoleculeDatapoint.from_smi(one, [float(len(one))]) for one in MOLECULES]
        self.rows = data.MoleculeDataset(points, featurizers.SimpleMoleculeMolGraphFeaturizer())

    def train_dataloader(self):
        return data.build_dataloader(self.rows, batch_size=8)
