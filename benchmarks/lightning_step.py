"""What a step of a LightningModule costs: in a bare loop, under Lightning's own Trainer, and as a run of hostcore.

The same module and data each time (two linear layers, 16 rows of 32 numbers, one logged value), one thread, on the CPU,
in turns. The time of a step is that from the first ``on_train_batch_start`` to the last ``on_train_batch_end``, by the
steps between; the bare loop reads the same dataset with a DataLoader. hostcore records metrics each 100 steps, as
Lightning would do with ``log_every_n_steps``; neither writes checkpoints meanwhile.

    pip install ./extensions/lightning
    python benchmarks/lightning_step.py [--rounds 5] [--steps 2000] [--json FILE]
"""

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
import lightning.pytorch as pl
import results
import torch
from torch.utils.data import DataLoader, TensorDataset

from hostcore.in_process import run

ROWS, WIDTH = 16, 32
TIMES: dict[str, float] = {}


class Data(pl.LightningDataModule):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.rows = torch.randn(steps * ROWS, WIDTH, generator=torch.Generator().manual_seed(0))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(self.rows), ROWS)


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1))

    def training_step(self, batch, batch_idx):
        loss = self.net(batch[0]).square().mean()
        self.log("train_loss", loss)
        return loss

    def on_train_batch_start(self, batch, batch_idx):
        TIMES.setdefault("began", time.perf_counter())

    def on_train_batch_end(self, outputs, batch, batch_idx):
        TIMES["ended"] = time.perf_counter()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def bare(steps: int) -> None:
    module = Module()
    module.log = lambda *_: None
    optimizer = module.configure_optimizers()
    for (batch,) in Data(steps).train_dataloader():
        module.on_train_batch_start(batch, 0)
        loss = module.training_step([batch], 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        module.on_train_batch_end(loss, batch, 0)


def lightning(steps: int) -> None:
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, log_every_n_steps=100,
    )  # fmt: skip
    trainer.fit(Module(), datamodule=Data(steps))


def hostcore(steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        result = run(
            {
                "trainer": "lightning",
                "hyperparams": {
                    "module": "lightning_step:Module",
                    "datamodule": "lightning_step:Data",
                    "datamodule_init": {"steps": steps},
                },
                "dataset": {"source": "hostcore-lightning/indices", "rows": steps * ROWS, "batch_size": ROWS},
                "epochs": 1,
                "metric_every": 100,
                "device": "cpu",
                "terminal": False,
            }
        )
        os.chdir(Path(__file__).parent)
        assert result.status == "succeeded", result.error


def measured(way: Callable[[int], None], steps: int) -> float:
    """Microseconds a step."""
    TIMES.clear()
    way(steps)
    return (TIMES["ended"] - TIMES["began"]) / (steps - 1) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000)
    results.add_option(parser)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    ways = (bare, lightning, hostcore)
    found: dict[str, list[float]] = {way.__name__: [] for way in ways}
    for _ in range(given.rounds):
        for way in ways:
            found[way.__name__].append(measured(way, given.steps))
    for name, times in found.items():
        print(f"{name:10} {statistics.median(times):8.0f} us  ({min(times):.0f}..{max(times):.0f})")
    results.write(given.json, "lightning_step", results.rows("us", found), steps=given.steps)


if __name__ == "__main__":
    # The job names this module: what it measures must not be that of another copy.
    sys.path.insert(0, str(Path(__file__).parent))
    sys.modules["lightning_step"] = sys.modules["__main__"]
    main()
