"""Modules whose steps change all kinds of things before their update; ``replay-check`` makes them again."""

import lightning.pytorch as pl
import torch
import torchmetrics
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.optim.lr_scheduler import StepLR


class Teaching(pl.LightningModule):
    """A teacher that follows, normalised prototypes, a batch that is changed in place, metrics, a bit that may flip."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2))
        self.teacher = nn.Linear(4, 8).requires_grad_(False)
        self.prototypes = nn.Linear(8, 2, bias=False)
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=2)
        self.register_buffer("center", torch.zeros(8))
        self.seen: list[int] = []
        self.view: torch.Tensor | None = None

    def on_train_batch_start(self, batch, batch_idx):
        self.seen.append(batch_idx)
        self.optimizers().param_groups[0]["lr"] *= 0.99

    def training_step(self, batch, batch_idx):
        with torch.no_grad():
            for own, other in zip(self.teacher.parameters(), self.net[0].parameters(), strict=True):
                own.data = own.data * 0.9 + other.data * 0.1
            self.prototypes.weight.data.copy_(normalize(self.prototypes.weight.data, dim=1))
        x, y = batch
        x += 0.01 * torch.randn_like(x)
        batch.pop()
        features = self.net(x)
        self.center = 0.9 * self.center + 0.1 * features.mean(0).detach()
        scores = self.prototypes(features - self.center)
        self.accuracy(scores, y)
        loss = cross_entropy(scores, y) + (self.teacher(x) - features).square().mean() * len(self.seen) / 100
        if self.view is not None:
            loss = loss + self.view.sum() * 0.001
        self.view = x[:1]
        if self.trainer.global_step + 1 == 6 and FLIPS and FLIPS.pop():
            scores.detach().view(torch.int32)[0, 0] ^= 1
            loss = loss + scores[0, 0] * 0.1
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.log("train_acc", self.accuracy, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW([one for one in self.parameters() if one.requires_grad], lr=0.01)
        return [optimizer], [{"scheduler": StepLR(optimizer, 5), "interval": "step"}]


class Accumulating(Teaching):
    """Its gradients add up over the steps, since nothing sets them to zero."""

    def optimizer_zero_grad(self, epoch, batch_idx, optimizer):
        pass


class Noisy(Teaching):
    """Draws noise that no seed decides about."""

    def training_step(self, batch, batch_idx):
        generator = torch.Generator()
        generator.seed()
        return super().training_step(batch, batch_idx) * (1 + torch.rand((), generator=generator))


#: A machine's fault, which no state of a module undoes: True for each time that it flips a bit.
FLIPS: list[bool] = []
