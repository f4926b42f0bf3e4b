"""Jobs for the modules of ``user_modules.py``, and what Lightning's own Trainer does with them.

Lightning is imported where it is used: every process of a pytest that collects tests beside these imports this module.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lit_watch import Watch

HERE = Path(__file__).parent

SEED = 5
#: What every worker of these jobs imports; see ``fork_server.popen``.
FRAMEWORK = ("lightning.pytorch", "hostcore_lightning.fit")


def section(rows: int, batch_size: int = 16) -> dict[str, Any]:
    return {"source": "hostcore-lightning/indices", "rows": rows, "batch_size": batch_size}


def job(module: str, *, rows: int = 160, **keys: Any) -> dict[str, Any]:
    """A job that trains a module of ``user_modules`` on its ``Data``, unshuffled."""
    hyperparams = {"module": f"user_modules:{module}", "datamodule": "user_modules:Data", **keys.pop("hyperparams", {})}
    given = {
        "run_id": "fit",
        "trainer": "lightning",
        "hyperparams": hyperparams,
        "dataset": section(rows, 8),
        "epochs": 3,
        "metric_every": 1,
        "seed": SEED,
        "device": "cpu",
        "terminal": False,
        **keys,
    }
    return {key: value for key, value in given.items() if value is not None}


def by_lightning(module: str, init: dict[str, Any] | None = None, **trainer: Any) -> Watch:
    """What Lightning's Trainer does with a module, on the first 80 rows."""
    import lightning.pytorch as pl
    import user_modules
    from lit_watch import WATCHED, Watch

    pl.seed_everything(SEED)
    model = getattr(user_modules, module)(**(init or {}))
    callbacks = [*trainer.pop("callbacks", ()), Watch()]
    options = {"max_epochs": 3, "limit_train_batches": 10, "accelerator": "cpu", "logger": False} | trainer
    own = pl.Trainer(
        callbacks=callbacks,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    own.fit(model, datamodule=user_modules.Data())
    return WATCHED[-1]


def by_command(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the output of the command in a folder, whose worker has imported Lightning already."""
    from fork_server import hostcore

    around = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = hostcore(arguments, imported=FRAMEWORK, cwd=folder, env=around, stdout=-1, stderr=-2, text=True)
    said, _ = process.communicate()
    return process.returncode, said
