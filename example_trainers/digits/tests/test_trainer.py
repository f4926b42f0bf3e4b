"""The trainer's methods, called as the host calls them."""

from copy import deepcopy
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from digits.trainer import Batch, DigitsTrainer, Hyperparams, State
from safetensors.torch import save_file

from hostcore_builtin_plugins.sources.parquet import ParquetSource
from hostcore_hookspecs import DataContext, Dataset, InvalidData, Job, RunState, StepContext, Trainer

trainer = DigitsTrainer()


def dataset(path: Path) -> Dataset:
    settings = {"parquet_paths": [str(path)]}
    return ParquetSource(settings=ParquetSource.Settings(**settings)).open_dataset(settings, DataContext())


def train(state: State, batch: Batch, ctx: StepContext, steps: int) -> list[float]:
    """Train, and return the loss of every step."""
    return [float(trainer.train_step(batch, state, ctx).metrics["loss"]) for _ in range(steps)]


def parameters(state: State) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in state.model.parameters()]


def test_it_satisfies_the_trainer_protocol() -> None:
    fits: Trainer = trainer
    assert fits is trainer


def test_it_learns_a_batch_by_heart(rows: pa.RecordBatch, ctx: StepContext) -> None:
    state = trainer.configure(ctx)
    batch = trainer.prepare_batch(rows, ctx)
    train(state, batch, ctx, steps=30)
    state.model.eval()  # the host does
    assert float(trainer.validate_step(batch, state, ctx).metrics["accuracy"]) > 0.95


def test_metrics_of_a_step_are_left_unread_and_carry_no_graph(rows: pa.RecordBatch, ctx: StepContext) -> None:
    result = trainer.train_step(trainer.prepare_batch(rows, ctx), trainer.configure(ctx), ctx)
    assert result.metrics.keys() == {"loss", "accuracy", "lr"}
    assert result.weight == rows.num_rows
    for name in ("loss", "accuracy"):
        assert isinstance(result.metrics[name], torch.Tensor)
        assert not result.metrics[name].requires_grad


@pytest.mark.parametrize("cuts", [(32, 32, 32), (64, 31, 1)])
def test_small_batches_accumulated_are_one_large_batch(rows: pa.RecordBatch, cuts: tuple[int, ...]) -> None:
    ctx = StepContext(job=Job(), run_state=RunState(total_steps=10), hyperparams=Hyperparams(channels=8, dropout=0))
    state = trainer.configure(ctx)
    start = deepcopy(trainer.state_dict(state))
    large = trainer.train_step(trainer.prepare_batch(rows, ctx), state, ctx)
    expected = parameters(state)

    trainer.load_state_dict(state, start)
    starts = [sum(cuts[:index]) for index in range(len(cuts))]
    small = [trainer.prepare_batch(rows.slice(at, cut), ctx) for at, cut in zip(starts, cuts, strict=True)]
    accumulated = trainer.train_step(tuple(small), state, ctx)
    for name, value in large.metrics.items():
        assert float(accumulated.metrics[name]) == pytest.approx(float(value), rel=1e-5)
    assert accumulated.weight == large.weight
    for one, other in zip(parameters(state), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_it_learns_in_half_precision(rows: pa.RecordBatch, precision: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ctx = StepContext(
        job=Job(precision=precision),
        run_state=RunState(total_steps=30),
        hyperparams=Hyperparams(channels=8, learning_rate=0.02),
        dtype=dtype,
        scaler=torch.amp.GradScaler("cpu") if precision == "fp16" else None,
    )
    state = trainer.configure(ctx)
    losses = train(state, trainer.prepare_batch(rows.slice(0, 16), ctx), ctx, steps=20)
    assert losses[-1] < 0.5 * losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in state.model.parameters())


def test_a_gradient_that_overflows_in_fp16_leaves_the_weights_as_they_are(rows: pa.RecordBatch) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    ctx = StepContext(
        job=Job(precision="fp16"),
        hyperparams=Hyperparams(channels=8, learning_rate=0.02),
        dtype=torch.float16,
        scaler=scaler,
    )
    state = trainer.configure(ctx)
    before = parameters(state)
    train(state, trainer.prepare_batch(rows, ctx), ctx, steps=1)
    assert all(torch.equal(one, other) for one, other in zip(parameters(state), before, strict=True))
    assert scaler.get_scale() < 2.0**120


def test_a_validation_in_parts_weighs_them_by_their_images(rows: pa.RecordBatch, ctx: StepContext) -> None:
    state = trainer.configure(ctx)
    state.model.eval()
    with torch.no_grad():
        whole, *parts = (
            trainer.test_step(trainer.prepare_batch(part, ctx), state, ctx)
            for part in (rows, rows.slice(0, 90), rows.slice(90))
        )
    for name, value in whole.metrics.items():
        weighed = sum(float(part.metrics[name]) * part.weight for part in parts) / 96
        assert weighed == pytest.approx(float(value), rel=1e-5)


def test_a_resumed_run_goes_on_bit_for_bit(rows: pa.RecordBatch, ctx: StepContext) -> None:
    state = trainer.configure(ctx)
    batch = trainer.prepare_batch(rows, ctx)
    train(state, batch, ctx, steps=10)
    payload = deepcopy(trainer.state_dict(state))  # other tensors with the same content, as a checkpoint gives back
    torch.manual_seed(1)
    expected = train(state, batch, ctx, steps=10)

    resumed = trainer.configure(ctx)
    trainer.load_state_dict(resumed, payload)
    torch.manual_seed(1)
    assert train(resumed, batch, ctx, steps=10) == expected


def test_other_data_is_refused_before_anything_is_built(prepared: Path, tmp_path: Path) -> None:
    trainer.setup(StepContext(dataset=dataset(prepared / "train.parquet")))
    pq.write_table(pa.table({"image": [[1.0] * 64], "label": [1]}), tmp_path / "other.parquet")
    with pytest.raises(InvalidData, match="no column 'image' of type fixed_size_list") as raised:
        trainer.setup(StepContext(dataset=dataset(tmp_path / "other.parquet")))
    assert "prepare_data" in str(raised.value.hint)


def test_the_weights_of_the_job_are_where_it_begins(ctx: StepContext, tmp_path: Path) -> None:
    trained = trainer.configure(ctx)
    save_file(trained.model.state_dict(), tmp_path / "model.safetensors")
    begun = trainer.configure(attrs.evolve(ctx, model_handles={"weights": str(tmp_path / "model.safetensors")}))
    for before, after in zip(trained.model.parameters(), begun.model.parameters(), strict=True):
        assert torch.equal(before, after)
