"""The trainer's methods, called as the host calls them. What all trainers promise is asked by the conformance kit."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from flight_delay.trainer import FlightDelayTrainer, Hyperparams
from prepared_job import begins_with_given_weights, dataset

from hostcore_hookspecs import InvalidData, Job, StepContext

trainer = FlightDelayTrainer()


def test_an_untrained_model_predicts_about_the_departure_delay(rows: pa.RecordBatch, ctx: StepContext) -> None:
    batch = trainer.prepare_batch(rows, ctx)
    departure_delay = batch.numbers[:, 0]
    with torch.inference_mode():
        predicted = trainer.configure(ctx).model.eval()(batch.ids, batch.numbers)
    assert (predicted - departure_delay).abs().max() < 20


def test_the_learning_rate_rises_then_falls_to_zero(rows: pa.RecordBatch, ctx: StepContext) -> None:
    state = trainer.configure(ctx)
    batch = trainer.prepare_batch(rows, ctx)
    rates = [trainer.train_step(batch, state, ctx).metrics["lr"] for _ in range(40)]
    peak = rates.index(max(rates))
    assert peak == 4  # a tenth of 40 steps
    assert rates[peak] == pytest.approx(Hyperparams().learning_rate)
    assert rates == sorted(rates[:peak]) + sorted(rates[peak:], reverse=True)
    assert rates[-1] < 0.01 * rates[peak]


def test_data_without_the_columns_is_refused_before_anything_is_built(
    rows: pa.RecordBatch, prepared: Path, tmp_path: Path
) -> None:
    trainer.setup(StepContext(dataset=dataset(prepared / "train.parquet")))
    pq.write_table(pa.table({"weekday": rows["weekday"]}), tmp_path / "other.parquet")
    with pytest.raises(InvalidData, match=r"lacks 22 of the 23 columns .* carrier_id") as raised:
        trainer.setup(StepContext(dataset=dataset(tmp_path / "other.parquet")))
    assert raised.value.hint is not None
    assert "prepare_data" in raised.value.hint


def test_a_run_of_unknown_length_has_a_constant_learning_rate(rows: pa.RecordBatch) -> None:
    ctx = StepContext(job=Job(epochs=1), hyperparams=Hyperparams())
    state = trainer.configure(ctx)
    batch = trainer.prepare_batch(rows, ctx)
    assert {trainer.train_step(batch, state, ctx).metrics["lr"] for _ in range(3)} == {Hyperparams().learning_rate}


def test_the_weights_of_the_job_are_where_it_begins(ctx: StepContext, tmp_path: Path) -> None:
    begins_with_given_weights(trainer, ctx, tmp_path)
