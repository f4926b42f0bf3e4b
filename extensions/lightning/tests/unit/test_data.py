"""Loaders that are read by index."""

import random
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
import torch

from hostcore.worker.feed.transform_call import generator
from hostcore_hookspecs import DataContext, ImportPath, InvalidData, Job, RunState, StepContext
from hostcore_lightning.data import Loaders
from hostcore_lightning.indices import MARK, IndicesSource
from hostcore_lightning.preparing import prepare_once
from hostcore_lightning.settings import CannotRun, Hyperparams
from hostcore_lightning.trainer import LightningTrainer


def named(module: str = "Classifier", data: str | None = "Data", **init: Any) -> Hyperparams:
    datamodule = None if data is None else ImportPath(f"user_modules:{data}")
    return Hyperparams(module=ImportPath(f"user_modules:{module}"), datamodule=datamodule, datamodule_init=init)


def indices(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers, pa.int64())], schema=pa.schema({"index": pa.int64()}, metadata=MARK)
    )


def test_sections_say_what_the_loaders_do(tmp_path: Any) -> None:
    found = LightningTrainer().data_sections(named(shuffle=True, num_workers=2), DataContext(cache_dir=str(tmp_path)))
    source = "hostcore-lightning/indices"
    assert found == {
        "dataset": {"source": source, "rows": 160, "batch_size": 8, "shuffle": True, "workers": 2},
        "validation": {"source": source, "rows": 40, "batch_size": 16},
        "test": {"source": source, "rows": 40, "batch_size": 16},
    }


@pytest.mark.parametrize(
    ("module", "data", "sections"),
    [
        pytest.param("Plain", "Data", {"dataset"}, id="without a step method"),
        pytest.param("WithLoaders", None, {"dataset", "validation"}, id="the module has the loaders"),
        pytest.param("Classifier", None, None, id="nobody has them, and the data is that of the job"),
    ],
)
def test_a_split_without_a_step_or_a_loader_has_no_section(
    module: str, data: str | None, sections: set[str] | None
) -> None:
    found = LightningTrainer().data_sections(named(module, data), DataContext())
    assert (found.keys() if found else None) == sections


def test_a_test_loader_that_cannot_be_made_leaves_the_training_without_a_test() -> None:
    trainer, given = LightningTrainer(), named("Tested", "WithoutTestRows")
    assert trainer.data_sections(given, DataContext()).keys() == {"dataset"}  # type: ignore[union-attr]
    with pytest.warns(UserWarning, match="no test: test_dataloader of WithoutTestRows raised ValueError: no test rows"):
        trainer.configure(StepContext(job=Job(max_steps=3), hyperparams=given, run_state=RunState(total_steps=3)))


@pytest.mark.parametrize(("module", "lacks"), [("NoStep", "training_step"), ("NoOptimizer", "configure_optimizers")])
def test_a_job_of_a_module_that_cannot_train_is_not_valid(module: str, lacks: str) -> None:
    """``hostcore validate`` asks for the data, and makes no module."""
    with pytest.raises(CannotRun, match=f"{module} has no {lacks}") as caught:
        LightningTrainer().data_sections(named(module), DataContext())
    assert caught.value.pointer == "/module"


def test_a_job_with_an_argument_that_the_module_does_not_take_is_not_valid() -> None:
    given = attrs.evolve(named(), init={"layer": 3})
    with pytest.raises(CannotRun, match="got an unexpected keyword argument 'layer'") as caught:
        LightningTrainer().data_sections(given, DataContext())
    assert caught.value.pointer == "/init"


def test_a_data_module_may_ask_how_many_ranks_there_are_and_little_else() -> None:
    found = LightningTrainer().data_sections(named(data="AsksTrainer"), DataContext(world_size=2))
    assert found is not None
    assert found["dataset"]["batch_size"] == 8
    with pytest.raises(CannotRun, match=r"`trainer\.max_epochs` is not known where the data is prepared") as caught:
        LightningTrainer().data_sections(named(data="AsksTrainer", asked="max_epochs"), DataContext())
    assert caught.value.pointer == "/datamodule"


def test_more_rows_than_the_dataset_has() -> None:
    with pytest.raises(InvalidData, match=r"/dataset/rows is larger .* Data.train_dataloader has: 160"):
        Loaders(named(), seed=0).batch([160], "train")


def test_other_data_comes_as_tensors_by_column() -> None:
    import numpy as np

    batch = pa.RecordBatch.from_pydict({"x": [1.0, 2.0]})
    found = LightningTrainer().transform_batch(
        batch, np.random.default_rng(0), StepContext(hyperparams=named(data=None))
    )
    assert torch.equal(found["x"], torch.tensor([1.0, 2.0], dtype=torch.float64))


def test_indices_are_read_from_any_row() -> None:
    """All shards together are the numbers from 0 on, each is read from any row, and none is larger than the first."""
    rows = 20_000
    source = IndicesSource(settings=IndicesSource.Settings(rows=rows)).open_dataset({}, DataContext())
    shards = source.shards()
    assert len(shards) > 1  # a shuffled order goes across the whole length
    assert [one.num_rows for one in shards[:-1]] == [shards[0].num_rows] * (len(shards) - 1)
    read = [number for shard in shards for batch in source.read_shard(shard, None, 0) for number in batch["index"]]
    assert [one.as_py() for one in read] == [*range(rows)]
    (rest,) = source.read_shard(shards[-1], None, shards[-1].num_rows - 2)
    assert rest.column("index").to_pylist() == [rows - 2, rows - 1]
    (middle,) = source.read_shard(shards[1], None, 5)
    assert middle.column("index")[0].as_py() == shards[0].num_rows + 5


def test_all_processes_split_the_data_alike() -> None:
    """Whatever they have drawn before, and whichever batch they read first: no row is both trained on and held out."""
    import numpy as np

    ctx = StepContext(hyperparams=named(data="Split"), job=Job(seed=5))
    held_out = StepContext(hyperparams=named(data="Split"), job=Job(seed=5), split="validation")

    def rows(place: int) -> tuple[set[Any], set[Any]]:
        trainer = LightningTrainer()
        first, second = (ctx, held_out) if place % 2 else (held_out, ctx)
        found = {}
        for one in (first, second):
            numbers = range(160) if one is ctx else range(40)
            x, _ = trainer.transform_batch(indices(*numbers), np.random.default_rng(place), one)
            found[one.split] = {tuple(row) for row in x.tolist()}
        return found["train"], found["validation"]

    splits = []
    for place in range(4):
        torch.manual_seed(place)
        random.seed(place)
        splits.append(rows(place))
    assert all(one == splits[0] for one in splits)
    assert not splits[0][0] & splits[0][1]
    other = Loaders(named(data="Split"), seed=6).batch(range(160), "train")
    assert {tuple(row) for row in other[0].tolist()} != splits[0][0]


@pytest.mark.parametrize(("data", "rows"), [("Weighted", 160), ("Chosen", 80)])
def test_a_sampler_gives_an_order_for_each_epoch(data: str, rows: int) -> None:
    """The same in each process, from any place in it on, and for each seed and epoch another."""
    given = named(data=data)
    assert LightningTrainer().data_sections(given, DataContext())["dataset"] == {
        "source": "hostcore-lightning/indices",
        "rows": rows,
        "batch_size": 8,
        "shuffle": False,
        "unit": "places of the sampler's order",
    }

    def order(seed: int, epoch: int) -> Any:
        return Loaders(given, seed=seed).batch(range(rows), "train", epoch=epoch)[0]

    loaders = Loaders(given, seed=1)
    loaders.batch([0], "train", epoch=2)
    assert torch.equal(loaders.batch(range(40, 48), "train", epoch=3)[0], order(1, 3)[40:48])
    assert not torch.equal(order(1, 3), order(1, 4))
    assert not torch.equal(order(1, 3), order(2, 3))
    ctx = StepContext(hyperparams=given, job=Job(seed=1))
    drawn, _ = LightningTrainer().transform_batch(indices(*range(rows)), generator(1, 3, 0), ctx)
    assert torch.equal(drawn, order(1, 3)), "the epoch is that of the batch"
    whole = Loaders(named(), seed=1).batch(range(160), "train")[0]
    numbers = [int((whole == row).all(1).nonzero()[0]) for row in drawn]
    assert all(one % 4 for one in numbers) if data == "Weighted" else sorted(numbers) == [*range(0, 160, 2)]


@pytest.mark.parametrize(
    ("data", "count", "unit"),
    [
        pytest.param("Batched", 19, "batches of the batch sampler", id="batch sampler"),
        pytest.param("Whole", 20, "batches of the sampler", id="a sampler of lists"),
        pytest.param("Unbatched", 160, "batches of the sampler", id="rows without batches"),
        pytest.param("Streamed", 1_000_000, "batches of the iterable dataset", id="stream"),
        pytest.param("Iterated", 1_000_000, "batches of the iterable", id="iterable"),
    ],
)
def test_a_row_is_a_batch_where_the_loader_makes_them(data: str, count: int, unit: str) -> None:
    given = named(data=data)
    section = {"rows": count, "batch_size": 1, "shuffle": False, "unit": unit}
    found = LightningTrainer().data_sections(given, DataContext())["dataset"]
    assert found == {"source": "hostcore-lightning/indices", **section}

    def batches(seed: int, epoch: int, *numbers: int) -> list[Any]:
        loaders = Loaders(given, seed=seed)
        return [loaders.batch([one], "train", epoch=epoch)[0] for one in numbers]

    whole = batches(1, 3, *range(19))
    again = batches(1, 3, 7, 8, 2)  # forwards, and back
    assert all(torch.equal(*pair) for pair in zip(again, (whole[7], whole[8], whole[2]), strict=True))
    assert not torch.equal(whole[0], batches(1, 4, 0)[0])
    assert not torch.equal(whole[0], batches(2, 3, 0)[0])
    assert whole[0].shape == ((4,) if data == "Unbatched" else (8, 4))
    if data in ("Streamed", "Iterated"):
        (next_pass,) = batches(1, 3, 20)
        assert not any(torch.equal(next_pass, one) for one in whole)
    with pytest.raises(InvalidData, match="2 batches of the loader are asked for at once") as caught:
        Loaders(given, seed=1).batch([0, 1], "train")
    assert '"batch_size": 1' in str(caught.value.hint)


def test_data_is_prepared_once_by_the_ranks_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MASTER_PORT", "1")

    def prepare(**ranks: int) -> int:
        LightningTrainer().data_sections(
            named(data="Downloads"), DataContext(cache_dir=str(tmp_path / "cache"), **ranks)
        )
        return len((tmp_path / "prepared.txt").read_text().splitlines())

    assert [prepare(rank=rank, world_size=2) for rank in (1, 0)] == [1, 1]
    monkeypatch.setenv("MASTER_PORT", "2")  # another attempt
    assert [prepare(rank=rank, world_size=2) for rank in (0, 1)] == [2, 2]
    assert [prepare() for _ in range(2)] == [3, 4]
    LightningTrainer().data_sections(named("DownloadingModule", "Downloads"), DataContext())
    assert (tmp_path / "prepared.txt").read_text().split()[-2:] == ["once", "module"], "the module's comes behind"


def test_a_wait_for_another_process_is_told_and_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = named(data="Downloads")

    def wait(asked: Hyperparams) -> None:
        prepare_once(lambda: None, tmp_path, asked, several=False, quiet_seconds=0.01, longest_seconds=0.01)

    def held() -> None:
        wait(named(data="Downloads", rows=4))  # other arguments do not wait
        with pytest.raises(CannotRun, match="another process has been running prepare_data of user_modules:Downloads"):
            wait(given)

    prepare_once(held, tmp_path, given, several=False)
    assert "waiting for another process, which runs prepare_data of user_modules:Downloads" in caplog.text


@pytest.mark.parametrize(
    ("data", "says", "way_out"),
    [
        ("NoLoader", "NoLoader has no train_dataloader", "LightningDataModule"),
        ("EmptyBatch", "gives rows that its dataset of 160 does not have, or an empty batch", "0 to 159"),
        ("EndlessValidation", "EndlessValidation.val_dataloader returns a loader without a length", "__len__"),
        ("Worded", "a loader whose list gives something else than batches by number", "numbers of rows"),
        ("Unsteady", "a loader whose Order gives other rows each time", "generator"),
        ("TooShort", "a loader whose Order gives 4 rows, and has a length of 9 of the 160", "__len__"),
        ("Several", "Several.val_dataloader returns several loaders", "ConcatDataset"),
        ("NotALoader", "NotALoader.train_dataloader returns a int", "DataLoader"),
        (
            "Classifier",
            "user_modules:Classifier is no LightningDataModule but a LightningModule",
            "LightningDataModule",
        ),
    ],
)
def test_what_cannot_be_read_by_index_is_refused(data: str, says: str, way_out: str) -> None:
    with pytest.raises(CannotRun) as caught:
        Loaders(named(data=data), seed=0).sections()
    assert says in caught.value.message
    assert way_out in (caught.value.hint or "")
    assert caught.value.pointer == "/datamodule"
    with pytest.raises(CannotRun, match="got an unexpected keyword argument 'row'") as caught:
        Loaders(named(row=3), seed=0)
    assert caught.value.pointer == "/datamodule_init"


def of_streams(data: str) -> Loaders:
    return Loaders(
        Hyperparams(module=ImportPath("user_modules:Plain"), datamodule=ImportPath(f"lit_streams:{data}")), seed=3
    )


@pytest.mark.parametrize(
    ("data", "warnings", "rows"),
    [
        pytest.param("Stateful", 0, range(84, 90), id="StatefulDataLoader"),  # of two batches: 128 to 170
        pytest.param("Nodes", 0, range(1), id="torchdata.nodes"),
        pytest.param("Forgets", 1, range(340, 380), id="a state without the buffer"),
    ],
)
def test_a_stream_goes_on_from_its_state_if_that_gives_the_same_batches_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, warnings: int, rows: range
) -> None:
    monkeypatch.chdir(tmp_path)
    whole, warned = of_streams(data), []
    unit = whole.sections()["dataset"]["unit"]
    assert unit.endswith(", which has a state_dict")
    assert whole.stream_state(0, 5) is None
    batches = [whole.batch([number], "train") for number in range(250)]  # more than a pass: it has 200
    for place in (150, 230):
        Path("read.txt").write_text("")
        other = of_streams(data)
        other.sections()
        other.go_on_from(whole.stream_state(0, place), warned.append)
        found = [other.batch([number], "train") for number in range(place, place + 20)]
        for one, same in zip(found, batches[place:], strict=False):
            assert torch.equal(one[0], same[0])
        if place == 150:
            assert len(Path("read.txt").read_text()) in rows
        again = other.stream_state(0, place + 20)
        assert again is not None
        assert again["number"] == whole.stream_state(0, place + 20)["number"]  # type: ignore[index]
    assert [f"{data}" for one in warned if "gives other batches behind load_state_dict" in one] == [data] * 2 * warnings
    assert torch.equal(other.batch([0], "train", epoch=1)[0], whole.batch([0], "train", epoch=1)[0])
    assert other.stream_state(0, 100) is None


def test_a_stream_whose_state_no_checkpoint_holds_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = of_streams("Lost")
    first = [whole.batch([number], "train", epoch=0) for number in range(150)]
    second = [whole.batch([number], "train", epoch=1) for number in range(150)]
    assert whole.stream_state(1, 150) is None
    for epoch, batches in ((0, first), (1, second)):
        found = of_streams("Lost").batch([149], "train", epoch=epoch)
        assert torch.equal(found[0], batches[149][0])


def test_rows_of_a_stateful_loader_are_read_by_number() -> None:
    section = of_streams("Mapped").sections()["dataset"]
    assert section == {"source": "hostcore-lightning/indices", "rows": 160, "batch_size": 8, "shuffle": True}
