"""The digits, prepared, and what the host would hand to the trainer."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from digits.prepare_data import prepare
from digits.trainer import Hyperparams

from hostcore_hookspecs import Job, RunState, StepContext


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the prepared digits."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder)
    return folder


@pytest.fixture(scope="session")
def rows(prepared: Path) -> pa.RecordBatch:
    """Images to train on, as the host hands them to ``prepare_batch``."""
    return pq.read_table(prepared / "train.parquet").combine_chunks().slice(0, 96).to_batches()[0]


@pytest.fixture
def ctx() -> StepContext:
    torch.manual_seed(0)
    return StepContext(
        job=Job(max_steps=30),
        run_state=RunState(total_steps=30),
        hyperparams=Hyperparams(channels=8, learning_rate=0.02),
        dtype=torch.float32,
    )
