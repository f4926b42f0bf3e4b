"""The trainer's methods, called as the host calls them. What all trainers promise is asked by the conformance kit."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from digits.trainer import DigitsTrainer, Hyperparams
from prepared_job import begins_with_given_weights, dataset

from hostcore_hookspecs import InvalidData, Job, StepContext

trainer = DigitsTrainer()


def test_a_gradient_that_overflows_in_fp16_leaves_the_weights_as_they_are(prepared: Path) -> None:
    rows = pq.read_table(prepared / "train.parquet").slice(0, 96).to_batches()[0]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    ctx = StepContext(
        job=Job(precision="fp16"), hyperparams=Hyperparams(channels=8), dtype=torch.float16, scaler=scaler
    )
    state = trainer.configure(ctx)
    before = [parameter.detach().clone() for parameter in state.model.parameters()]
    trainer.train_step(trainer.prepare_batch(rows, ctx), state, ctx)
    assert all(torch.equal(one, other) for one, other in zip(state.model.parameters(), before, strict=True))
    assert scaler.get_scale() < 2.0**120


def test_other_data_is_refused_before_anything_is_built(prepared: Path, tmp_path: Path) -> None:
    trainer.setup(StepContext(dataset=dataset(prepared / "train.parquet")))
    pq.write_table(pa.table({"image": [[1.0] * 64], "label": [1]}), tmp_path / "other.parquet")
    with pytest.raises(InvalidData, match="no column 'image' of type fixed_size_list") as raised:
        trainer.setup(StepContext(dataset=dataset(tmp_path / "other.parquet")))
    assert "prepare_data" in str(raised.value.hint)


def test_the_weights_of_the_job_are_where_it_begins(tmp_path: Path) -> None:
    begins_with_given_weights(trainer, StepContext(hyperparams=Hyperparams(channels=8)), tmp_path)
