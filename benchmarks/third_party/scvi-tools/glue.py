"""scVI over synthetic counts, whose ``train`` has a Trainer of its own."""

import scvi
from caught import caught

scvi.settings.seed = 1  # else each process splits the rows otherwise


def train():
    counts = scvi.data.synthetic_iid(batch_size=100, n_genes=20, n_proteins=0, n_regions=0)
    scvi.model.SCVI.setup_anndata(counts, batch_key="batch")
    scvi.model.SCVI(counts, n_hidden=8, n_latent=4).train(max_epochs=20, batch_size=16, accelerator="cpu")


def model():
    return caught(train).module


def data():
    return caught(train).data
