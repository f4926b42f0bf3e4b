"""Loaders that are read by index."""

from typing import Any

import pyarrow as pa
import pytest
import torch
from user_modules import Data

from hostcore_hookspecs import DataContext, ImportPath, InvalidData, StepContext
from hostcore_lightning.data import Loaders
from hostcore_lightning.indices import SCHEMA, IndicesSource
from hostcore_lightning.settings import CannotRun, Hyperparams
from hostcore_lightning.trainer import LightningTrainer


def named(module: str = "Classifier", data: str | None = "Data", **init: Any) -> Hyperparams:
    datamodule = None if data is None else ImportPath(f"user_modules:{data}")
    return Hyperparams(module=ImportPath(f"user_modules:{module}"), datamodule=datamodule, datamodule_init=init)


def indices(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=SCHEMA)


def test_sections_say_what_the_loaders_do(tmp_path: Any) -> None:
    found = LightningTrainer().data_sections(named(shuffle=True, num_workers=2), DataContext(cache_dir=str(tmp_path)))
    source = "hostcore-lightning/indices"
    assert found == {
        "dataset": {"source": source, "rows": 160, "batch_size": 8, "shuffle": True, "workers": 2},
        "validation": {"source": source, "rows": 40, "batch_size": 16},
        "test": {"source": source, "rows": 40, "batch_size": 16},
    }


def test_a_split_without_a_step_method_has_no_section() -> None:
    assert LightningTrainer().data_sections(named("Plain"), DataContext()).keys() == {"dataset"}


def test_a_module_may_have_the_loaders_itself() -> None:
    found = LightningTrainer().data_sections(named("WithLoaders", None), DataContext())
    assert found is not None
    assert found.keys() == {"dataset", "validation"}


def test_a_module_without_loaders_leaves_the_data_to_the_job() -> None:
    assert LightningTrainer().data_sections(named("Classifier", None), DataContext()) is None


def test_a_batch_is_that_of_the_loader() -> None:
    data = Data()
    data.setup("fit")
    first = next(iter(data.train_dataloader()))
    found = Loaders(named()).batch(range(8), "train")
    assert all(torch.equal(one, other) for one, other in zip(found, first, strict=True))


def test_more_rows_than_the_dataset_has() -> None:
    with pytest.raises(InvalidData, match=r"/dataset/rows says .* Data.train_dataloader has: 160"):
        Loaders(named()).batch([160], "train")


def test_drawn_rows_follow_from_the_generator_alone() -> None:
    import numpy as np

    ctx, trainer = StepContext(hyperparams=named(data="Noisy")), LightningTrainer()
    before = torch.get_rng_state()
    one, same = (trainer.transform_batch(indices(3, 1), np.random.default_rng(7), ctx) for _ in range(2))
    other = LightningTrainer().transform_batch(indices(3, 1), np.random.default_rng(7), ctx)
    more = trainer.transform_batch(indices(3, 1), np.random.default_rng(8), ctx)
    assert torch.equal(one[0], same[0])
    assert torch.equal(one[0], other[0])
    assert not torch.equal(one[0], more[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_other_data_comes_as_tensors_by_column() -> None:
    import numpy as np

    batch = pa.RecordBatch.from_pydict({"x": [1.0, 2.0]})
    found = LightningTrainer().transform_batch(
        batch, np.random.default_rng(0), StepContext(hyperparams=named(data=None))
    )
    assert torch.equal(found["x"], torch.tensor([1.0, 2.0], dtype=torch.float64))


def test_indices_are_read_from_any_row() -> None:
    source = IndicesSource(settings=IndicesSource.Settings(rows=200_000)).open_dataset({}, DataContext())
    first, second = source.shards()
    assert (first.num_rows, second.num_rows) == (131_072, 68_928)
    (rest,) = source.read_shard(second, None, 68_926)
    assert rest.column("index").to_pylist() == [199_998, 199_999]


@pytest.mark.parametrize(
    ("data", "says", "way_out"),
    [
        ("NoLoader", "NoLoader has no train_dataloader", "LightningDataModule"),
        ("Streamed", "Streamed.train_dataloader returns a loader of an IterableDataset (Rows)", "__getitem__"),
        ("Weighted", "a loader with a sampler of its own (WeightedRandomSampler)", "Subset"),
        ("OwnBatches", "a loader with Batches", "batch_size"),
        ("Several", "Several.val_dataloader returns 2 loaders", "ConcatDataset"),
        ("NotALoader", "NotALoader.train_dataloader returns a list_iterator", "DataLoader"),
        (
            "Classifier",
            "user_modules:Classifier is no LightningDataModule but a LightningModule",
            "LightningDataModule",
        ),
    ],
)
def test_what_cannot_be_read_by_index_is_refused(data: str, says: str, way_out: str) -> None:
    with pytest.raises(CannotRun) as caught:
        Loaders(named(data=data)).sections()
    assert says in caught.value.message
    assert way_out in (caught.value.hint or "")
    assert caught.value.pointer == "/datamodule"


def test_a_wrong_constructor_argument_is_named() -> None:
    with pytest.raises(CannotRun, match="got an unexpected keyword argument 'row'") as caught:
        Loaders(named(row=3))
    assert caught.value.pointer == "/datamodule_init"
