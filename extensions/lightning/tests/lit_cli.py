"""A program with a LightningCLI of its own: links, an optimizer by arguments, a callback under a key of its own."""

import lightning.pytorch as pl
import torch
from lightning.pytorch.cli import LightningCLI
from torch.nn.functional import cross_entropy
from user_modules import Data


class Points(Data):
    def __init__(self, rows: int = 160, seed: int = 0) -> None:
        super().__init__(rows=rows)
        assert seed == 5  # linked
        self.width = 4


class Net(pl.LightningModule):
    made = 0

    def __init__(self, inputs: int, steps: int, activation: torch.nn.Module = torch.nn.ReLU()) -> None:  # noqa: B008 - as users write it
        super().__init__()
        Net.made += 1
        assert steps == 20  # linked
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(inputs, 8), activation, torch.nn.Dropout(0.1), torch.nn.Linear(8, 2)
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        return cross_entropy(self.net(x), y)


class Cli(LightningCLI):
    def add_arguments_to_parser(self, parser):
        parser.link_arguments("trainer.max_steps", "model.steps")
        parser.link_arguments("data.width", "model.inputs", apply_on="instantiate")
        parser.link_arguments("seed_everything", "data.seed")
        parser.add_lightning_class_args(pl.callbacks.ModelCheckpoint, "checkpoint")
        parser.set_defaults({"checkpoint.save_top_k": 0})

    def before_instantiate_classes(self):
        assert self.config.fit.optimizer.class_path == "torch.optim.Adam"


def cli_main(args=None) -> None:
    Cli(Net, Points, trainer_defaults={"gradient_clip_val": 0.1}, save_config_callback=None, args=args)


def cli_without_trainer() -> None:
    class Own(Cli):
        def instantiate_trainer(self, **kwargs):
            return pl.Trainer(logger=False)

    Own(Net, Points)


def nothing() -> None:
    """Makes no CLI."""
