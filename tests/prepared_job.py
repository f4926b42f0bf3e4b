"""The job of an example trainer over prepared data, as its tests run it."""

import json
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors.torch import save_file

from hostcore_builtin_plugins.sources.parquet import ParquetSource
from hostcore_hookspecs import DataContext, Dataset, StepContext

SPLITS = {"dataset": "train", "validation": "validation", "test": "test"}


def job_over(folder: Path, job_file: Path, *, batch_size: int | None = None, **keys: Any) -> dict[str, Any]:
    """The job of a file, on the CPU, over the Parquet files of a folder; keys are merged into it."""
    job: dict[str, Any] = json.loads(job_file.read_text())
    for split in SPLITS.keys() & job.keys():
        job[split]["parquet_paths"] = [str(folder / f"{SPLITS[split]}.parquet")]
        if batch_size is not None:
            job[split]["batch_size"] = batch_size
    return {**job, "device": "cpu", **keys}


def dataset(path: Path) -> Dataset:
    """The data of a Parquet file, as the host hands them to ``setup``."""
    settings = {"parquet_paths": [str(path)]}
    return ParquetSource(settings=ParquetSource.Settings(**settings)).open_dataset(settings, DataContext())


def begins_with_given_weights(trainer: Any, ctx: StepContext, folder: Path) -> None:
    """Assert that a trainer's model begins with the weights that the job names."""
    trained = trainer.configure(ctx)
    save_file(trained.model.state_dict(), folder / "model.safetensors")
    begun = trainer.configure(attrs.evolve(ctx, model_handles={"weights": str(folder / "model.safetensors")}))
    for before, after in zip(trained.model.parameters(), begun.model.parameters(), strict=True):
        assert torch.equal(before, after)
