"""A part of the training data held out: ``"validation": {"fraction": 0.1}``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 600
TRAINER = """
from pathlib import Path
from hostcore_hookspecs import Capabilities, StepResult

class Trainer:
    CAPABILITIES = Capabilities(distributed=True)

    def configure(self, ctx):
        return {"sum": 0.0}

    def prepare_batch(self, raw_batch):
        return raw_batch["x"].to_pylist()

    def train_step(self, prepared_batch, state, ctx):
        place = ctx.run_state.step if ctx.split == "train" else 0
        with Path(ctx.run_dir, f"seen-{ctx.split}-{ctx.rank}").open("a") as seen:
            print(place, *prepared_batch, file=seen)
        return StepResult(metrics={"x": sum(prepared_batch) / len(prepared_batch)})

    validate_step = test_step = train_step

    def state_dict(self, state):
        return state

    def load_state_dict(self, state, payload):
        state.update(payload)
"""


@pytest.fixture(scope="module")
def project_with_data(project: Any) -> Any:
    (project.path / "fraction_trainer.py").write_text(TRAINER)
    for name, first, rows in (("a", 0, ROWS), ("b", ROWS, ROWS // 2)):
        numbers = pa.array(range(first, first + rows), pa.int64())
        pq.write_table(pa.table({"x": numbers}), project.path / f"{name}.parquet", row_group_size=20)
    return project


def job(project: Any, run_id: str, **keys: Any) -> Path:
    given = {
        "dataset": {"parquet_paths": ["a.parquet"], "batch_size": 4, "shuffle": True},
        "validation": {"fraction": 0.1, "batch_size": 16},
        "test": {"fraction": 0.2},
        "epochs": 2,
        "validate_every": "epoch",
        **keys,
    }
    path = Path(project.job(f"{run_id}.json", trainer="fraction_trainer:Trainer", run_id=run_id, **given))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
    return path


def seen(project: Any, run_id: str, split: str) -> Mapping[int, list[int]]:
    """The rows that a split saw, by step, over the ranks; a step that was made again counts once."""
    found: dict[int, dict[str, list[int]]] = {}
    for file in (project.path / "runs" / run_id).glob(f"seen-{split}-*"):
        for line in file.read_text().splitlines():
            step, *rows = map(int, line.split())
            found.setdefault(step, {}).setdefault(file.name, [])
            if split == "train":
                found[step][file.name] = rows
            else:
                found[step][file.name] += rows
    return {step: [row for rows in by_rank.values() for row in rows] for step, by_rank in found.items()}


def test_each_row_is_of_one_split_also_when_the_run_is_killed(project_with_data: Any, look: Any) -> None:
    faults = [{"use": "chaos", "faults": ["kill@step=37"]}]
    keys = {"checkpoint_every": 20, "callbacks": faults}
    path = job(project_with_data, "killed", **keys)
    assert [project_with_data.command("run", path).code for _ in range(2)] == [1, 0]
    assert project_with_data.command("run", job(project_with_data, "whole")).code == 0
    trained = seen(project_with_data, "killed", "train")
    assert trained == seen(project_with_data, "whole", "train")
    splits = [
        {row for rows in seen(project_with_data, "killed", split).values() for row in rows}
        for split in ("train", "validation", "test")
    ]
    assert sum(map(len, splits)) + len(set(range(ROWS)) - set.union(*splits)) == ROWS
    assert len(set(range(ROWS)) - set.union(*splits)) < 4, "the last short batch alone"
    assert [len(one) / ROWS for one in splits] == pytest.approx([0.7, 0.1, 0.2], abs=0.05)

    killed = project_with_data.path / "runs/killed"
    rows = look("rows", killed, "--step", "11", "--json").json["rows"]
    assert sorted(one["row"] for one in rows) == sorted(trained[10])
    held_out, used = min(splits[2]), min(splits[0])
    assert "held out" in look("rows", killed, "--row", f"a.parquet:{held_out}").err
    assert "1 " in look("rows", killed, "--row", f"a.parquet:{used}").out
    assert look("verify", killed).code == 0


def test_ranks_share_the_same_rows(project_with_data: Any) -> None:
    keys: dict[str, Any] = {"epochs": 1, "validate_every": 0, "device": None}
    for name, size, devices in (("one", 4, ["cpu"]), ("two", 2, ["cpu", "cpu"])):
        data = {"parquet_paths": ["a.parquet"], "batch_size": size}
        path = job(project_with_data, name, **keys, dataset=data, devices=devices)
        assert project_with_data.command("run", path).code == 0
    alone, shared = (seen(project_with_data, name, "train") for name in ("one", "two"))
    assert {step: sorted(rows) for step, rows in alone.items()} == {step: sorted(rows) for step, rows in shared.items()}


def test_a_mixture_is_held_out_of_as_a_whole(project_with_data: Any) -> None:
    parts = [
        {"name": name, "parquet_paths": [f"{name}.parquet"], "weight": weight} for name, weight in (("a", 3), ("b", 1))
    ]
    dataset = {"of": parts, "batch_size": 4, "shuffle": True, "exhausted": "drop"}
    path = job(project_with_data, "mixed", dataset=dataset, epochs=1)
    assert project_with_data.command("run", path).code == 0
    splits = [
        {row for rows in seen(project_with_data, "mixed", split).values() for row in rows}
        for split in ("train", "validation", "test")
    ]
    assert sum(map(len, splits)) == len(set.union(*splits)) > ROWS + ROWS // 2 - 4
    assert all({row < ROWS for row in split} == {True, False} for split in splits), "of both parts"


@pytest.mark.parametrize(
    ("keys", "place", "message"),
    [
        ({"validation": {"fraction": 1.0}}, "/validation/fraction", "a number above 0 and below"),
        ({"validation": {"fraction": 0.5}, "test": {"fraction": 0.6}}, "/validation/fraction", "below 0.4"),
        ({"validation": {"fraction": "5%"}}, "/validation/fraction", 'not "5%"'),
        ({"validation": {"fraction": 0.1, "source": "csv"}}, "/validation/source", "names other data"),
        ({"validation": {"fraction": 0.1, "parquet_paths": ["b"]}}, "/validation/parquet_paths", "names other data"),
        ({"dataset": None, "mock_batches": [1]}, "/validation/fraction", "has a dataset itself"),
        (
            {"dataset": {"parquet_paths": ["a.parquet"], "fraction": 0.1}, "validation": None, "test": None},
            "/dataset/fraction",
            "has a dataset itself",
        ),
        (
            {"dataset": {"parquet_paths": ["a.parquet"], "hash_range": [0.5, 0.2]}, "validation": None, "test": None},
            "/dataset/hash_range",
            "no range of 0 to 1",
        ),
        (
            {"dataset": {"parquet_paths": ["a.parquet"], "hash_range": [0, 0.2]}, "test": None},
            "/validation/fraction",
            "has a hash_range already",
        ),
        ({"validation": {"fraction": 0.00001}, "test": None}, "/validation", "none of 600 rows"),
        ({"dataset": {"of": "a"}}, "/dataset/of", "expected"),
        ({"dataset": {"of": ["a.parquet"]}}, "/dataset/of/0", "expected"),
    ],
)
def test_mistakes_are_one_error(project_with_data: Any, keys: Any, place: str, message: str) -> None:
    path = job(project_with_data, "wrong", **keys)
    found = project_with_data.command("validate", path, "--json").json["errors"]
    wrong = [one for one in found if one["pointer"] == place]
    assert wrong, found
    assert message in wrong[0]["message"]
