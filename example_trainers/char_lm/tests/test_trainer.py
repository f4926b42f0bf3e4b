"""The trainer's methods, called as the host calls them."""

import math
from copy import deepcopy
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from char_lm.trainer import Batch, CharLmTrainer, Hyperparams, State
from safetensors.torch import save_file

from hostcore_builtin_plugins.sources.parquet import ParquetSource
from hostcore_hookspecs import (
    DataContext,
    Dataset,
    InvalidData,
    InvalidSettings,
    Job,
    RunState,
    SampleRequest,
    StepContext,
    Trainer,
)

trainer = CharLmTrainer()


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


def test_a_target_is_the_byte_after_its_input(rows: pa.RecordBatch, ctx: StepContext) -> None:
    batch = trainer.prepare_batch(rows, ctx)
    assert batch.inputs.shape == batch.targets.shape == (4 * 256 // 32, 32)
    text = rows["tokens"][0].as_py()
    assert batch.inputs[:8].flatten().tolist() == text[:-1]
    assert batch.targets[:8].flatten().tolist() == text[1:]


def test_the_loss_falls(rows: pa.RecordBatch, ctx: StepContext) -> None:
    state = trainer.configure(ctx)
    losses = train(state, trainer.prepare_batch(rows, ctx), ctx, steps=30)
    assert losses[0] == pytest.approx(math.log(256), abs=0.2)
    assert losses[-1] < 0.7 * losses[0]


def test_metrics_of_a_step_are_left_unread_and_carry_no_graph(rows: pa.RecordBatch, ctx: StepContext) -> None:
    result = trainer.train_step(trainer.prepare_batch(rows, ctx), trainer.configure(ctx), ctx)
    assert isinstance(result.metrics["loss"], torch.Tensor)
    assert not result.metrics["loss"].requires_grad
    assert result.weight == 4 * 256


@pytest.mark.parametrize("cuts", [(2, 2), (3, 1), (1, 1, 1, 1)])
def test_small_batches_accumulated_are_one_large_batch(rows: pa.RecordBatch, cuts: tuple[int, ...]) -> None:
    hyperparams = Hyperparams(context=32, layers=2, heads=2, width=32, dropout=0)
    ctx = StepContext(job=Job(), run_state=RunState(total_steps=10), hyperparams=hyperparams)
    state = trainer.configure(ctx)
    start = deepcopy(trainer.state_dict(state))
    large = trainer.train_step(trainer.prepare_batch(rows, ctx), state, ctx)
    expected = parameters(state)

    trainer.load_state_dict(state, start)
    starts = [sum(cuts[:index]) for index in range(len(cuts))]
    small = [trainer.prepare_batch(rows.slice(at, cut), ctx) for at, cut in zip(starts, cuts, strict=True)]
    accumulated = trainer.train_step(tuple(small), state, ctx)
    assert float(accumulated.metrics["loss"]) == pytest.approx(float(large.metrics["loss"]), rel=1e-5)
    assert accumulated.weight == large.weight
    for one, other in zip(parameters(state), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_it_learns_in_bf16_with_weights_in_fp32(rows: pa.RecordBatch, ctx: StepContext) -> None:
    torch.manual_seed(0)
    half = StepContext(
        job=Job(precision="bf16"), run_state=ctx.run_state, hyperparams=ctx.hyperparams, dtype=torch.bfloat16
    )
    state = trainer.configure(half)
    losses = train(state, trainer.prepare_batch(rows, half), half, steps=30)
    assert losses[-1] < 0.7 * losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in state.model.parameters())


def test_validation_reports_bits_and_weighs_by_bytes(rows: pa.RecordBatch, ctx: StepContext) -> None:
    state = trainer.configure(ctx)
    state.model.eval()  # the host does
    with torch.no_grad():
        whole, *parts = (
            trainer.test_step(trainer.prepare_batch(part, ctx), state, ctx)
            for part in (rows, rows.slice(0, 3), rows.slice(3))
        )
    assert whole.metrics["bits_per_byte"] == pytest.approx(float(whole.metrics["loss"]) / math.log(2))
    for name, value in whole.metrics.items():
        weighed = sum(float(part.metrics[name]) * part.weight for part in parts) / (4 * 256)
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


@pytest.mark.parametrize("prompt", ["for x in ", "Füße", None])
def test_a_sample_is_a_file_that_begins_with_the_prompt(ctx: StepContext, tmp_path: Path, prompt: str | None) -> None:
    state = trainer.configure(ctx)
    state.model.eval()
    info = trainer.generate_sample(state, SampleRequest(prompt=prompt, seed=1), str(tmp_path), ctx)
    text = (tmp_path / str(info["file"])).read_bytes().decode()
    assert text.startswith(prompt or "\n")
    assert len(text) == info["characters"]


def test_a_rank_other_than_the_first_writes_no_sample(ctx: StepContext, tmp_path: Path) -> None:
    state = trainer.configure(ctx)
    ctx.rank = 1
    trainer.generate_sample(state, SampleRequest(prompt="a"), str(tmp_path), ctx)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("changes", "pointer"), [({"context": 100}, "/context"), ({"heads": 3}, "/heads")])
def test_sizes_that_do_not_divide_are_refused_before_anything_is_built(changes: dict[str, int], pointer: str) -> None:
    with pytest.raises(InvalidSettings, match="does not divide") as raised:
        trainer.setup(StepContext(hyperparams=Hyperparams(**changes)))
    assert raised.value.pointer == pointer


def test_other_data_is_refused_before_anything_is_built(prepared: Path, tmp_path: Path, ctx: StepContext) -> None:
    trainer.setup(StepContext(hyperparams=ctx.hyperparams, dataset=dataset(prepared / "train.parquet")))
    pq.write_table(pa.table({"tokens": ["text"]}), tmp_path / "other.parquet")
    with pytest.raises(InvalidData, match="no column 'tokens' of type fixed_size_list") as raised:
        trainer.setup(StepContext(hyperparams=ctx.hyperparams, dataset=dataset(tmp_path / "other.parquet")))
    assert "prepare_data" in str(raised.value.hint)


def test_the_weights_of_the_job_are_where_it_begins(ctx: StepContext, tmp_path: Path) -> None:
    trained = trainer.configure(ctx)
    save_file(trained.model.state_dict(), tmp_path / "model.safetensors")
    begun = trainer.configure(attrs.evolve(ctx, model_handles={"weights": str(tmp_path / "model.safetensors")}))
    for before, after in zip(trained.model.parameters(), begun.model.parameters(), strict=True):
        assert torch.equal(before, after)
