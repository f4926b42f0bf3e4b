"""A text, prepared, and what the host would hand to the trainer."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from char_lm.prepare_data import prepare
from char_lm.trainer import Hyperparams

from hostcore_hookspecs import Job, RunState, StepContext


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the prepared text: Python's language reference."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder)
    return folder


@pytest.fixture(scope="session")
def rows(prepared: Path) -> pa.RecordBatch:
    """Text to train on, as the host hands it to ``prepare_batch``."""
    return pq.read_table(prepared / "train.parquet").combine_chunks().slice(0, 4).to_batches()[0]


@pytest.fixture(scope="session")
def small() -> dict[str, float]:
    """Hyperparameters of a model that takes milliseconds."""
    return {
        "context": 32,
        "layers": 2,
        "heads": 2,
        "width": 32,
        "dropout": 0.1,
        "learning_rate": 0.01,
        "sample_length": 16,
    }


@pytest.fixture
def ctx(small: dict[str, float]) -> StepContext:
    torch.manual_seed(0)
    return StepContext(
        job=Job(max_steps=30),
        run_state=RunState(total_steps=30),
        hyperparams=Hyperparams(**small),
        dtype=torch.float32,
    )
