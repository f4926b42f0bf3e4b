"""A small GPT in a module, as the package's tutorial writes it."""

import lightning.pytorch as pl
import torch
from litgpt import GPT, Config
from litgpt.utils import chunked_cross_entropy
from torch.utils.data import DataLoader, Dataset


class LitLLM(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = GPT(Config(n_layer=1, n_head=2, n_embd=16, block_size=16, vocab_size=64, padded_vocab_size=64))

    def training_step(self, batch, batch_idx):
        logits = self.model(batch)
        loss = chunked_cross_entropy(logits[:, :-1], batch[:, 1:])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01, betas=(0.9, 0.95))
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Rows(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        return torch.randint(64, (16,), generator=draw)


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Rows(), batch_size=8)
