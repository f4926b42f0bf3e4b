"""What ``resume_proof.py`` trains with Lightning: as a job of hostcore's trainer ``lightning``, and by ``pl.Trainer``.

The module is the transformer of ``lightning.pytorch.demos``, with its dropout, as the package ships it.
"""

import json
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from resume_proof import BATCH, EPOCHS, EVERY, ROWS, note
from torch.utils.data import DataLoader, TensorDataset

LENGTH, VOCABULARY = 16, 64


class Words(pl.LightningDataModule):
    """Random sequences in which each token is mostly the successor of the one before."""

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        first = torch.randint(VOCABULARY, (ROWS, 1), generator=generator)
        jumps = torch.rand(ROWS, LENGTH, generator=generator) < 0.2
        steps = torch.where(jumps, torch.randint(VOCABULARY, (ROWS, LENGTH), generator=generator), torch.tensor(1))
        tokens = torch.cat([first, first + steps.cumsum(1)], 1) % VOCABULARY
        self.rows = TensorDataset(tokens[:, :-1], tokens[:, 1:])

    def train_dataloader(self) -> Any:
        return DataLoader(self.rows, batch_size=BATCH, shuffle=True)


class Note(pl.Callback):
    """Writes down what each step has done; it is the same one in both ways."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        note(trainer.global_step, torch.cat(batch, 1).tolist(), outputs["loss"].item())


def prepare(place: Path) -> None:
    (place / "data").mkdir()
    (place / "data/wikitext-2.txt").write_text("not used\n")  # else the module's own prepare_data would download it
    job = {
        "run_id": "proof",
        "trainer": "lightning",
        "hyperparams": {
            "module": "lightning.pytorch.demos.transformer:LightningTransformer",
            "init": {"vocab_size": VOCABULARY},
            "datamodule": "resume_lightning:Words",
            "callbacks": [{"use": "resume_lightning:Note"}],
        },
        "epochs": EPOCHS,
        "checkpoint_every": EVERY,
        "device": "cpu",
        "terminal": False,
    }
    (place / "job.json").write_text(json.dumps(job))


def train(place: Path) -> None:
    """From the last checkpoint, if there is one."""
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.demos.transformer import LightningTransformer

    pl.seed_everything(0, workers=True)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Note(), ModelCheckpoint(place / "checkpoints", every_n_train_steps=EVERY, save_last=True)],
    )
    trainer.fit(LightningTransformer(VOCABULARY), datamodule=Words(), ckpt_path="last")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
