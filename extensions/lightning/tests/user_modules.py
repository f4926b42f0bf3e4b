"""Modules as their users write them: nothing in them knows of hostcore."""

import random
from pathlib import Path
from typing import ClassVar

import lightning.pytorch as pl
import torch
import torchmetrics
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.optim.lr_scheduler import ExponentialLR, OneCycleLR, ReduceLROnPlateau, StepLR
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)


class Data(pl.LightningDataModule):
    """Points of two classes. The generators keep a DataLoader from drawing from the global one."""

    def __init__(self, rows: int = 160, batch_size: int = 8, shuffle: bool = False, num_workers: int = 0) -> None:
        super().__init__()
        self.rows, self.batch_size, self.shuffle, self.num_workers = rows, batch_size, shuffle, num_workers

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(3)
        x = torch.randn(self.rows + 40, 4, generator=generator)
        y = (x.sum(1) + 0.5 * torch.randn(len(x), generator=generator) > 0).long()
        self.training = TensorDataset(x[: self.rows], y[: self.rows])
        self.held_out = TensorDataset(x[self.rows :], y[self.rows :])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(
            self.training,
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            num_workers=self.num_workers,
            drop_last=True,
            generator=torch.Generator(),
        )

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.held_out, batch_size=16, generator=torch.Generator())

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.held_out, batch_size=16, generator=torch.Generator())


class NoTest(Data):
    """Nothing to test on at the end of a run."""

    test_dataloader = pl.LightningDataModule.test_dataloader


class Classifier(pl.LightningModule):
    """Automatic optimization, logged values, metrics that are no means, a plateau scheduler."""

    monitor = "val_loss"

    def __init__(self, lr: float = 0.05, dropout: float = 0.2) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 2))
        self.train_acc = torchmetrics.Accuracy(task="multiclass", num_classes=2)
        self.val_f1 = torchmetrics.F1Score(task="multiclass", num_classes=2, average="macro")
        self.val_auroc = torchmetrics.AUROC(task="multiclass", num_classes=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        scores = self(x)
        loss = cross_entropy(scores, y)
        self.train_acc(scores, y)
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.log("train_acc", self.train_acc, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        scores = self(x)
        self.val_f1(scores, y)
        self.val_auroc.update(scores.softmax(1), y)
        self.log_dict({"val_loss": cross_entropy(scores, y), "val_f1": self.val_f1}, prog_bar=True)

    def on_validation_epoch_end(self):
        self.log("val_auroc", self.val_auroc.compute())
        self.val_auroc.reset()

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("test_loss", cross_entropy(self(x), y), batch_size=len(x))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        plateau = ReduceLROnPlateau(optimizer, patience=0, factor=0.5, threshold=0.1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": self.monitor}}


class Certified(Classifier):
    """Needs no validation to go on."""

    monitor = "train_loss"


class WithLoaders(Classifier):
    """Its own loaders, and no data module."""

    def __init__(self) -> None:
        super().__init__()
        self.data = Data()
        self.data.setup("fit")

    def train_dataloader(self):
        return self.data.train_dataloader()

    def val_dataloader(self):
        return [self.data.val_dataloader()]


class Plain(pl.LightningModule):
    """The shortest one; the way in which optimizers are given is a parameter."""

    def __init__(self, form: str = "single") -> None:
        super().__init__()
        self.form = form
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))

    def training_step(self, batch):
        x, y = batch
        return cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        if self.form == "single":
            return optimizer
        if self.form == "list":
            return [optimizer]
        if self.form == "two lists":
            return [optimizer], [
                StepLR(optimizer, 1, 0.9),
                {"scheduler": ExponentialLR(optimizer, 0.99), "interval": "step"},
            ]
        if self.form == "frequency":
            each = {"scheduler": StepLR(optimizer, 1, 0.9), "interval": "step", "frequency": 3}
            return {"optimizer": optimizer, "lr_scheduler": each}
        if self.form == "one cycle":
            steps = self.trainer.estimated_stepping_batches
            each = {"scheduler": OneCycleLR(optimizer, 0.3, total_steps=steps), "interval": "step"}
            return [{"optimizer": optimizer, "lr_scheduler": each}]
        if self.form == "lbfgs":
            return torch.optim.LBFGS(self.parameters(), lr=0.05, max_iter=4)
        raise ValueError(self.form)


class InNemosStyle(Plain):
    def __init__(self, cfg, trainer=None) -> None:
        super().__init__()
        self.rate = cfg.optim.lr


class Returns(Plain):
    """A dictionary, or nothing for some batches."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch)
        return None if batch_idx % 5 == 3 else {"loss": loss, "more": 1}


class StepPlateau(Plain):
    """A plateau scheduler that makes a step at every second step, by the loss of training."""

    def training_step(self, batch):
        loss = super().training_step(batch)
        self.log("running", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5)
        plateau = ReduceLROnPlateau(optimizer, patience=1, factor=0.8)
        each = {"scheduler": plateau, "interval": "step", "frequency": 2, "monitor": "running"}
        return {"optimizer": optimizer, "lr_scheduler": each}


class Adversarial(pl.LightningModule):
    """Manual optimization of two networks that train against each other."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4))
        self.critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def training_step(self, batch, batch_idx):
        x, _ = batch
        first, second = self.optimizers()
        noise = torch.randn(len(x), 2)
        self.toggle_optimizer(first)
        loss_g = -self.critic(self.generator(noise)).mean()
        first.zero_grad()
        self.manual_backward(loss_g)
        self.clip_gradients(first, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        first.step()
        self.untoggle_optimizer(first)
        self.toggle_optimizer(second)
        loss_d = mse_loss(self.critic(x), torch.ones(len(x), 1)) + mse_loss(
            self.critic(self.generator(noise).detach()), torch.zeros(len(x), 1)
        )
        second.zero_grad()
        self.manual_backward(loss_d)
        second.step()
        self.untoggle_optimizer(second)
        self.log_dict({"g": loss_g, "d": loss_d}, prog_bar=True)
        return loss_g.detach() + loss_d.detach()

    def on_train_epoch_end(self):
        self.lr_schedulers().step()

    def configure_optimizers(self):
        first = torch.optim.Adam(self.generator.parameters(), lr=0.01, betas=(0.5, 0.9))
        second = torch.optim.Adam(self.critic.parameters(), lr=0.01)
        return [first, second], [StepLR(first, 1, 0.5)]


class ByHand(Plain):
    """Manual optimization that accumulates gradients itself: a step of the optimizer for every second batch."""

    every = 2

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch) / self.every
        self.manual_backward(loss)
        if (batch_idx + 1) % self.every == 0:
            optimizer = self.optimizers()
            optimizer.step()
            optimizer.zero_grad()
        return loss


class ByHandAlone(ByHand):
    """With loaders of its own."""

    def train_dataloader(self):
        data = Data()
        data.setup("fit")
        return data.train_dataloader()


class ByHandPlain(ByHand):
    """A step for every batch, where the mean over the rows of two ranks is that over all rows."""

    every = 1

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


class Hooked(Classifier):
    """Writes down which hooks are called, in ``calls``, and uses some of them."""

    calls: ClassVar[list[str]] = []

    def on_train_epoch_end(self):
        if self.current_epoch == 0:  # what BackboneFinetuning does, the other way round
            self.net[0].weight.requires_grad_(False)
            self.net[2].eval()

    def on_before_optimizer_step(self, optimizer):
        self.log("grad_norm", torch.stack([p.grad.norm() for p in self.parameters() if p.grad is not None]).norm())

    def configure_gradient_clipping(self, optimizer, gradient_clip_val, gradient_clip_algorithm):
        self.clip_gradients(
            optimizer, gradient_clip_val=gradient_clip_val, gradient_clip_algorithm=gradient_clip_algorithm
        )

    def lr_scheduler_step(self, scheduler, metric):
        scheduler.step(metric)

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
        optimizer.step(closure=optimizer_closure)
        if self.trainer.global_step < 5:
            for group in optimizer.param_groups:
                group["lr"] = (self.trainer.global_step + 1) / 5 * self.hparams.lr

    def transfer_batch_to_device(self, batch, device, dataloader_idx):
        return super().transfer_batch_to_device([batch[0] * 2, batch[1]], device, dataloader_idx)

    def on_after_batch_transfer(self, batch, dataloader_idx):
        return [batch[0] / 4, batch[1]]

    def on_save_checkpoint(self, checkpoint):
        checkpoint["of the module"] = {"epoch": self.current_epoch}

    def on_load_checkpoint(self, checkpoint):
        assert checkpoint["of the module"]["epoch"] == checkpoint["epoch"]

    def configure_callbacks(self):
        return [EarlyStopping("val_loss", patience=100), ModelCheckpoint()]


def _written_down(hook):
    own = getattr(Hooked, hook)

    def call(self, *args, **options):
        Hooked.calls.append(hook)
        return own(self, *args, **options)

    return call


for _hook in (
    "setup", "configure_model", "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start",
    "on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer", "on_before_zero_grad",
    "optimizer_zero_grad", "on_before_backward", "backward", "on_after_backward", "on_before_optimizer_step",
    "configure_gradient_clipping", "optimizer_step", "lr_scheduler_step", "on_train_batch_end",
    "on_validation_model_zero_grad",
    "on_validation_model_eval", "on_validation_start", "on_validation_epoch_start", "on_validation_batch_start",
    "on_validation_batch_end", "on_validation_epoch_end", "on_validation_end", "on_validation_model_train",
    "on_train_epoch_end", "on_train_end", "on_fit_end", "on_test_model_eval", "on_test_start", "on_test_epoch_start",
    "on_test_batch_start", "on_test_batch_end", "on_test_epoch_end", "on_test_end", "on_test_model_train", "teardown",
):  # fmt: skip
    setattr(Hooked, _hook, _written_down(_hook))


class Tuned(pl.LightningModule):
    """A backbone, which `BackboneFinetuning` freezes at first, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh())
        self.head = nn.Linear(8, 2)

    def training_step(self, batch):
        x, y = batch
        return cross_entropy(self.head(self.backbone(x)), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.head.parameters(), lr=0.01)


class NamesOneTwice(Plain):
    def training_step(self, batch):
        loss = super().training_step(batch)
        self.log("train_loss", loss)
        self.log("loss", 2 * loss)
        return loss


class LogsEpochs(Plain):
    """Metrics of an epoch, one of them by the name of the loss."""

    def training_step(self, batch):
        loss = super().training_step(batch)
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        self.log("train_twice", 2 * loss, on_step=False, on_epoch=True)
        self.log("half", loss / 2, prog_bar=True)
        return loss


class BringsMonitors(Plain):
    def configure_callbacks(self):
        return [LearningRateMonitor(), ModelCheckpoint()]


class Noisy(Data):
    """Rows that are drawn anew whenever they are read."""

    def setup(self, stage: str) -> None:
        super().setup(stage)
        rows = self.training

        class Drawn(torch.utils.data.Dataset):
            def __len__(self):
                return len(rows)

            def __getitem__(self, index):
                x, y = rows[index]
                return x + 0.1 * torch.randn(4), y

        self.training = Drawn()


class Split(Data):
    """Splits the data by the global generators, in its constructor and in each stage."""

    def __init__(self, **init) -> None:
        super().__init__(**init)
        self.order = random.sample(range(self.rows + 40), self.rows + 40)

    def setup(self, stage: str) -> None:
        super().setup(stage)
        both = torch.utils.data.ConcatDataset([self.training, self.held_out])
        whole = torch.utils.data.Subset(both, self.order)
        self.training, self.held_out = random_split(whole, [self.rows, 40])


class Weighted(Data):
    """Some rows more often than others, some never."""

    def train_dataloader(self):
        weights = [float(one % 4) for one in range(self.rows)]
        return DataLoader(self.training, batch_size=8, sampler=WeightedRandomSampler(weights, 160))


class Chosen(Data):
    """Half of the rows, in an order of a generator of its own."""

    def train_dataloader(self):
        sampler = SubsetRandomSampler(range(0, self.rows, 2), generator=torch.Generator().manual_seed(1))
        return DataLoader(self.training, batch_size=8, sampler=sampler)


class AsksTrainer(Data):
    """Divides the batch among the ranks, and looks for more of the Trainer if it is asked to."""

    def __init__(self, asked: str = "") -> None:
        super().__init__()
        self.asked = asked

    def setup(self, stage: str) -> None:
        super().setup(stage)
        self.batch_size = 16 // self.trainer.world_size
        if self.asked:
            getattr(self.trainer, self.asked)


class Downloads(Data):
    """Writes down, in the present folder, whenever it prepares its data."""

    def prepare_data(self) -> None:
        with Path("prepared.txt").open("a") as file:
            file.write("once\n")


class DownloadingModule(Classifier):
    """Writes down, in the present folder, whenever it prepares its data."""

    def prepare_data(self) -> None:
        with Path("prepared.txt").open("a") as file:
            file.write("module\n")


class Synced(Classifier):
    """Logs over all ranks."""

    def log(self, *args, **options):
        super().log(*args, **{"sync_dist": True, **options})

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


# Mistakes.


class NoStep(pl.LightningModule):
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class NoOptimizer(pl.LightningModule):
    def training_step(self, batch):
        return None


class Internals(Plain):
    def on_train_batch_start(self, batch, batch_idx):
        self.trainer.fit_loop.max_epochs += 1


class Tested(Classifier):
    def test_step(self, batch, batch_idx):
        pass


class WithoutTestRows(Data):
    """Without a validation, too, which the instance alone knows."""

    def __init__(self):
        super().__init__()
        self.val_dataloader = super(Data, self).val_dataloader

    def test_dataloader(self):
        raise ValueError("no test rows")


class NoLoader(pl.LightningDataModule):
    pass


class Drawing(IterableDataset):
    """Rows in an order of its own, with noise from several generators, and without a length."""

    def __init__(self, rows: TensorDataset) -> None:
        self.rows, self.rng = rows, random.Random(0)

    def __iter__(self):
        for index in torch.randperm(len(self.rows)).tolist():
            x, y = self.rows[index]
            yield x + 0.1 * torch.randn(4) + self.rng.gauss(0, 0.1), y


class Streamed(Data):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Drawing(self.training), batch_size=8, drop_last=True)


class Batched(Data):
    """Batches of rows of one class, in an order that is drawn."""

    def train_dataloader(self) -> DataLoader:
        class OfOneClass(Sampler):
            def __init__(self, rows: TensorDataset) -> None:
                self.classes = [(rows.tensors[1] == one).nonzero().flatten().tolist() for one in (0, 1)]

            def __len__(self) -> int:
                return sum(len(one) // 8 for one in self.classes)

            def __iter__(self):
                found = [
                    one[at : at + 8] for one in map(self.shuffled, self.classes) for at in range(0, len(one) - 7, 8)
                ]
                return iter(self.shuffled(found))

            @staticmethod
            def shuffled(values: list) -> list:
                return random.sample(values, len(values))

        return DataLoader(self.training, batch_sampler=OfOneClass(self.training))


class EmptyBatch(Data):
    """A batch sampler whose second batch has no rows."""

    batches: ClassVar[list] = [[0, 1], []]

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.training, batch_sampler=self.batches)


class Worded(EmptyBatch):
    batches: ClassVar[list] = [["first"], ["second"]]


class EndlessValidation(Data):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(Drawing(self.held_out), batch_size=8)


class Whole(Data):
    """Batches that the dataset makes itself, as scvi's do."""

    def train_dataloader(self) -> DataLoader:
        sampler = BatchSampler(RandomSampler(self.training), batch_size=8, drop_last=True)
        return DataLoader(self.training, batch_size=None, sampler=sampler)


class Unbatched(Data):
    """Rows as they are, shuffled."""

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.training, batch_size=None, shuffle=True)


class Unsteady(Data):
    """A sampler that gives as many rows as it says, other ones each time."""

    says, gives = 4, 4

    def train_dataloader(self):
        says, gives = self.says, self.gives

        class Order(Sampler):
            generator = random.Random(0)

            def __len__(self):
                return says

            def __iter__(self):
                return iter(self.generator.sample(range(100), gives))

        return DataLoader(self.training, batch_size=2, sampler=Order())


class TooShort(Unsteady):
    says = 9


class Several(Data):
    def val_dataloader(self):
        return [super().val_dataloader(), super().val_dataloader()]


class NotALoader(Data):
    def train_dataloader(self):
        return 3


class Iterated(Data):
    """An iterable of batches, each time a new one."""

    def train_dataloader(self):
        return map(list, DataLoader(Drawing(self.training), batch_size=8, drop_last=True))
