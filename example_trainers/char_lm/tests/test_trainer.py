"""The trainer's methods, called as the host calls them. What all trainers promise is asked by the conformance kit."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from char_lm.trainer import CharLmTrainer, Hyperparams
from prepared_job import begins_with_given_weights, dataset

from hostcore_hookspecs import (
    InvalidData,
    InvalidSettings,
    SampleRequest,
    StepContext,
)

trainer = CharLmTrainer()


def test_a_target_is_the_byte_after_its_input(rows: pa.RecordBatch, ctx: StepContext) -> None:
    batch = trainer.prepare_batch(rows, ctx)
    assert batch.inputs.shape == batch.targets.shape == (4 * 256 // 32, 32)
    text = rows["tokens"][0].as_py()
    assert batch.inputs[:8].flatten().tolist() == text[:-1]
    assert batch.targets[:8].flatten().tolist() == text[1:]


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
    begins_with_given_weights(trainer, ctx, tmp_path)
