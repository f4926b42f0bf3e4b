"""The trainer's methods, called as the host calls them."""

from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from flight_delay.batch import Batch
from flight_delay.trainer import FlightDelayTrainer, Hyperparams, State
from flight_delay.weights import load_model
from safetensors.torch import save_file

from hostcore_builtin_plugins.sources.parquet import ParquetSource
from hostcore_hookspecs import DataContext, Dataset, InvalidData, Job, StepContext, Trainer

trainer = FlightDelayTrainer()


def dataset(path: Path) -> Dataset:
    settings = {"parquet_paths": [str(path)]}
    return ParquetSource(settings=ParquetSource.Settings(**settings)).open_dataset(settings, DataContext())


def train(state: State, batch: Batch, ctx: StepContext, steps: int) -> list[float]:
    """Train, and return the loss of every step."""
    return [float(trainer.train_step(batch, state, ctx).metrics["loss"]) for _ in range(steps)]


def predict(state: State, batch: Batch) -> torch.Tensor:
    with torch.inference_mode():
        return state.model.eval()(batch.ids, batch.numbers)


def test_it_satisfies_the_trainer_protocol() -> None:
    fits: Trainer = trainer
    assert fits is trainer


def test_the_loss_falls(rows: pa.RecordBatch, ctx: StepContext) -> None:
    state = trainer.configure(ctx)
    losses = train(state, trainer.prepare_batch(rows, ctx), ctx, steps=40)
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_an_untrained_model_predicts_about_the_departure_delay(rows: pa.RecordBatch, ctx: StepContext) -> None:
    batch = trainer.prepare_batch(rows, ctx)
    departure_delay = batch.numbers[:, 0]
    assert (predict(trainer.configure(ctx), batch) - departure_delay).abs().max() < 20


def test_the_learning_rate_rises_then_falls_to_zero(rows: pa.RecordBatch, ctx: StepContext) -> None:
    state = trainer.configure(ctx)
    batch = trainer.prepare_batch(rows, ctx)
    rates = [trainer.train_step(batch, state, ctx).metrics["lr"] for _ in range(40)]
    peak = rates.index(max(rates))
    assert peak == 4  # a tenth of 40 steps
    assert rates[peak] == pytest.approx(Hyperparams().learning_rate)
    assert rates == sorted(rates[:peak]) + sorted(rates[peak:], reverse=True)
    assert rates[-1] < 0.01 * rates[peak]


def test_metrics_of_a_step_are_left_unread_and_carry_no_graph(rows: pa.RecordBatch, ctx: StepContext) -> None:
    metrics = trainer.train_step(trainer.prepare_batch(rows, ctx), trainer.configure(ctx), ctx).metrics
    assert metrics.keys() == {"loss", "mae", "lr"}
    for name in ("loss", "mae"):
        assert isinstance(metrics[name], torch.Tensor)
        assert not metrics[name].requires_grad


def test_validation_is_repeatable_counts_flights_and_leaves_the_model_as_it_is(
    rows: pa.RecordBatch, ctx: StepContext
) -> None:
    state = trainer.configure(ctx)
    state.model.eval()  # the host does
    batch = trainer.prepare_batch(rows, ctx)
    before = [parameter.clone() for parameter in state.model.parameters()]
    with torch.no_grad():
        first, second = trainer.validate_step(batch, state, ctx), trainer.test_step(batch, state, ctx)
    assert first.metrics == second.metrics
    assert first.weight == rows.num_rows
    assert all(torch.equal(a, b) for a, b in zip(before, state.model.parameters(), strict=True))


def test_the_saved_model_predicts_what_the_trained_one_does(
    rows: pa.RecordBatch, ctx: StepContext, tmp_path: Path
) -> None:
    state = trainer.configure(ctx)
    batch = trainer.prepare_batch(rows, ctx)
    train(state, batch, ctx, steps=5)
    info = trainer.save_checkpoint(state, str(tmp_path))
    assert (tmp_path / str(info["weights"])).is_file()
    with torch.inference_mode():
        assert torch.equal(load_model(tmp_path)(batch.ids, batch.numbers), predict(state, batch))


def test_it_trains_in_bf16(rows: pa.RecordBatch) -> None:
    ctx = StepContext(job=Job(max_steps=3, precision="bf16"), hyperparams=Hyperparams(), dtype=torch.bfloat16)
    state = trainer.configure(ctx)
    losses = train(state, trainer.prepare_batch(rows, ctx), ctx, steps=3)
    assert all(loss > 0 for loss in losses)
    assert all(parameter.dtype == torch.float32 for parameter in state.model.parameters())


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
    trained = trainer.configure(ctx)
    save_file(trained.model.state_dict(), tmp_path / "model.safetensors")
    begun = trainer.configure(attrs.evolve(ctx, model_handles={"weights": str(tmp_path / "model.safetensors")}))
    for before, after in zip(trained.model.parameters(), begun.model.parameters(), strict=True):
        assert torch.equal(before, after)
