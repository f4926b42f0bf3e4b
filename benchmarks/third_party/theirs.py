"""Train the module of ``job.json`` with ``pl.Trainer``; print the losses. Runs in the environment of a package."""

import json
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, SequentialSampler

from hostcore_hookspecs import ImportPath
from hostcore_lightning.former_names import find_former_names

find_former_names()
from hostcore_lightning.data import Loaders  # noqa: E402
from hostcore_lightning.making import made  # noqa: E402
from hostcore_lightning.settings import Hyperparams  # noqa: E402


class Losses(pl.Callback):
    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if "loss" in outputs:  # else the module optimizes by hand, and returns none
            self.seen.append(float(outputs["loss"]))


def main() -> None:
    job = json.loads(Path("job.json").read_text())
    given = job["hyperparams"] | {
        key: ImportPath(job["hyperparams"][key]) for key in ("module", "datamodule") if key in job["hyperparams"]
    }
    given.pop("callbacks", None)
    hyperparams, losses, seed = Hyperparams(**given), Losses(), job["seed"]
    loaders = Loaders(hyperparams, seed=seed)
    loaders.prepare()
    loader = loaders.loader("train")
    if isinstance(loader, DataLoader):
        loader.generator = torch.Generator()  # else its number for processes is drawn from the global generator
    pl.seed_everything(seed)
    module = made(hyperparams.module, hyperparams.init, pl.LightningModule, pointer="/module")
    trainer = pl.Trainer(
        max_steps=job["max_steps"], accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        limit_val_batches=1.0 if job.get("validate_every") else 0, callbacks=[losses],
        gradient_clip_val=given.get("gradient_clip_val"),
    )  # fmt: skip
    data = loaders.datamodule
    if data is None:
        trainer.fit(module, loader)
    else:
        data.setup = data.prepare_data = lambda *_, **__: None  # done, from the seed
        data.train_dataloader = lambda: loader
        trainer.fit(module, datamodule=data)
    is_drawn = not isinstance(getattr(loader, "sampler", None), SequentialSampler)
    sys.stdout.write("\n" + json.dumps({"is_drawn": is_drawn, "losses": losses.seen}) + "\n")


if __name__ == "__main__":
    main()
