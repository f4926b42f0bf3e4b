"""A beta-VAE over generated images, as in the package's README."""

import lightning.pytorch as pl
from disent.dataset import DisentDataset
from disent.dataset.data import XYObjectData
from disent.dataset.sampling import SingleSampler
from disent.dataset.transform import ToImgTensorF32
from disent.frameworks.vae import BetaVae
from disent.model import AutoEncoder
from disent.model.ae import DecoderConv64, EncoderConv64
from torch.utils.data import DataLoader

IMAGES = XYObjectData()


def model():
    return BetaVae(
        model=AutoEncoder(
            encoder=EncoderConv64(x_shape=IMAGES.x_shape, z_size=4, z_multiplier=2),
            decoder=DecoderConv64(x_shape=IMAGES.x_shape, z_size=4),
        ),
        cfg=BetaVae.cfg(optimizer="adam", optimizer_kwargs={"lr": 1e-3}, loss_reduction="mean_sum", beta=4),
    )


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(
            DisentDataset(IMAGES, SingleSampler(), transform=ToImgTensorF32()), batch_size=4, shuffle=True
        )
