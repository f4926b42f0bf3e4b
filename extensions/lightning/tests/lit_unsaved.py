"""Modules, callbacks and datasets with state that no ``state_dict`` has, as their users write them."""

import random
from collections import defaultdict, deque

import lightning.pytorch as pl
import numpy as np
import torch
import user_modules
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset


class Schedule:
    """A plain object that counts."""

    def __init__(self) -> None:
        self.calls = 0

    def weight(self) -> float:
        self.calls += 1
        return min(1.0, self.calls / 40)


class Keeper(pl.LightningModule):
    """Each of its attributes changes the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 2)
        self.steps = 0
        self.hidden: torch.Tensor | None = None
        self.recent: deque[float] = deque(maxlen=3)
        self.bank: list[torch.Tensor] = []
        self.losses: dict[str, defaultdict[str, list[torch.Tensor]]] = {"train": defaultdict(list)}
        self.schedules = {"weight": Schedule()}
        self.teacher = [nn.Linear(4, 2)]  # in a list, so that it is no submodule
        self.rng = np.random.default_rng(0)
        self.draws = torch.Generator().manual_seed(0)
        self.seen: set[int] = set()
        self.weights = [self.net.weight]  # saved with the module

    def training_step(self, batch, batch_idx):
        x, y = batch
        self.steps += 1
        self.seen.add(self.steps // 7)
        scores = self.net(x) * self.schedules["weight"].weight()
        if self.hidden is not None:
            scores = scores + 0.1 * self.hidden
        self.hidden = scores.mean(0).detach()
        self.bank = [*self.bank[-4:], x.mean(0)]
        noise = float(self.rng.normal()) * 0.01 + float(torch.rand((), generator=self.draws)) * 0.01
        with torch.no_grad():
            for own, other in zip(self.teacher[0].parameters(), self.net.parameters(), strict=True):
                own.lerp_(other, 0.1)
        loss = cross_entropy(scores, y) * (1 + len(self.seen) / self.steps) + noise
        loss = loss + 0.1 * (self.teacher[0](x).detach() - scores).pow(2).mean() + self.bank[0].sum() * 0.01
        self.recent.append(float(loss.detach()))
        loss = loss + max(self.recent) * 0.1
        self.losses["train"]["sum"].append(loss.detach())
        loss = loss + torch.stack(self.losses["train"]["sum"]).mean() * 0.1
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Slower(pl.Callback):
    """Lowers the learning rate by a count of its own."""

    def __init__(self) -> None:
        self.count = 0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.count += 1
        trainer.optimizers[0].param_groups[0]["lr"] = 0.1 / (1 + self.count / 50)


class Jitter:
    """Draws from generators of its own, as the transforms of image libraries do."""

    def __init__(self) -> None:
        self.python, self.numpy = random.Random(0), np.random.RandomState(0)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.python.gauss(0, 0.1) + float(self.numpy.normal(0, 0.1))


class Pipeline:
    def __init__(self, *transforms) -> None:
        self.transforms = transforms

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        for each in self.transforms:
            x = each(x)
        return x


class Drawn(Dataset):
    def __init__(self, rows: Dataset) -> None:
        self.rows, self.transform = rows, Pipeline(Jitter(), Jitter())
        self.rng: np.random.Generator | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int):
        self.rng = self.rng or np.random.default_rng(0)
        x, y = self.rows[index]
        return self.transform(x) + self.rng.normal(0, 0.1, 4).astype("float32"), y


class Data(user_modules.Data):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Drawn(self.training), batch_size=8, drop_last=True)


class Labelled(torch.Tensor):
    """A tensor of a class of its own, as packages have."""


class Opaque(user_modules.Plain):
    """Makes what no checkpoint holds in each step, and counts."""

    count = 0

    def __init__(self) -> None:
        super().__init__()
        self.around: dict[str, object] = {}
        self.around["again"] = self.around

    def training_step(self, batch):
        self.count += 1
        self.last, self.history = [object()], [0.5] * 100_001
        self.labelled, self.sparse = torch.ones(2).as_subclass(Labelled), torch.ones(2).to_sparse()
        self.objects = np.array([None, self.count])
        return super().training_step(batch)


class Caching(user_modules.Data):
    """Keeps what it has read, and counts it."""

    def __init__(self, bytes_of_a_row: int = 4096) -> None:
        super().__init__()
        self.cache: dict[int, torch.Tensor] = {}
        self.count, self.size = 0, bytes_of_a_row // 4

    def on_before_batch_transfer(self, batch, dataloader_idx):
        self.count += 1
        self.cache[self.count] = torch.zeros(self.size)
        return batch
