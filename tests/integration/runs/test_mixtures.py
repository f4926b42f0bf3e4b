"""A run over a mixture of sources: resumed exactly, proved, and told by file and row; mistakes are one error each."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

WEB, CODE = 60, 24


def write(path: Path, first: int, rows: int, **columns: Any) -> None:
    numbers = pa.array(range(first, first + rows), pa.float64())
    pq.write_table(pa.table({"x": numbers, **columns}), path, row_group_size=6)


def dataset(**keys: Any) -> dict[str, Any]:
    parts = [
        {"name": "web", "parquet_paths": ["web.parquet"], "weight": 0.75},
        {"name": "code", "source": "csv", "paths": ["code.csv"], "types": {"x": "float64"}, "weight": 0.25},
    ]
    return {"source": "mix", "of": parts, "batch_size": 4, "shuffle": True, **keys}


@pytest.fixture(scope="module")
def mixes(project: Any) -> Any:
    """A project with two sources of numbers: below 1,000 those of the web, above code."""
    (project.path / "data_trainer.py").write_text((Path(__file__).parent / "data_trainer.py").read_text())
    write(project.path / "web.parquet", 0, WEB)
    (project.path / "code.csv").write_text("x\n" + "".join(f"{1000 + row}\n" for row in range(CODE)))
    return project


def job(mixes: Any, run_id: str, **keys: Any) -> Path:
    stages = [{"until": 5, "weights": [1, 0]}, {"until": 12, "weights": [1, 1]}]
    given = {"dataset": dataset(stages=stages), "max_steps": 30, "metric_every": 1, **keys}
    return mixes.job(f"{run_id}.json", trainer="data_trainer:Trainer", run_id=run_id, **given)


def test_a_run_that_was_killed_in_a_stage_goes_on_exactly_and_is_proved(mixes: Any, look: Any) -> None:
    keys: dict[str, Any] = {"checkpoint_every": 4, "keep_checkpoints": 10, "validate_every": 15}
    keys["validation"] = {**dataset(), "shuffle": False}
    for part in keys["validation"]["of"]:
        del part["weight"]
    assert mixes.command("run", job(mixes, "whole", **keys)).code == 0
    faults = [{"use": "chaos", "faults": ["kill@step=10"]}]
    codes = [mixes.command("run", job(mixes, "killed", callbacks=faults, **keys)).code for _ in range(2)]
    assert codes == [1, 0]
    killed = mixes.run("killed")
    assert killed.metric("train/loss") == mixes.run("whole").metric("train/loss")
    validated = [event["metrics"] for event in killed.events if event["event"] == "validation"]
    web, code = [*range(WEB)], [*range(1000, 1000 + CODE)]
    means = {"val/x": mean(web + code), "val/x/web": mean(web), "val/x/code": mean(code)}
    assert validated == [means] * len(validated), "each row once, whatever the weights"
    proof = look("verify", killed.path)
    assert proof.code == 0
    assert "120 rows were trained on, each in its place" in proof.out

    def files(step: int) -> list[str]:
        rows = look("rows", killed.path, "--step", step, "--json").json["rows"]
        return [one["file"].rpartition("/")[2] for one in rows]

    assert set(files(5)) == {"web.parquet"}
    assert ["csv" in name for name in sorted(files(6) + files(7))].count(True) == 4


def test_a_plan_shows_the_proportions(mixes: Any) -> None:
    shown = mixes.command("validate", job(mixes, "shown")).out
    assert "rows an epoch in 11 shards" in shown
    assert "web 100 %, code 0 %, until step 5" in shown
    assert "web 75 %, code 25 %; repeat" in shown


def with_part(**keys: Any) -> dict[str, Any]:
    """A mixture whose second part has other keys."""
    found = dataset()
    found["of"][1] = {key: value for key, value in {**found["of"][1], **keys}.items() if value is not None}
    return found


@pytest.mark.parametrize(
    ("given", "pointer", "message"),
    [
        (with_part(paths=["no.csv"]), "/dataset/of/1/paths/0", "no.csv does not exist"),
        (with_part(weigth=2), "/dataset/of/1/weigth", "unknown key"),
        (with_part(source="cvs"), "/dataset/of/1/source", "no data source is called 'cvs'"),
        ({**dataset(), "columns": ["y"]}, "/dataset/of/0", "has no column 'y'"),
        (dataset(stages=[{"until": 3, "weights": [1]}]), "/dataset/stages/0/weights", "1 weights for 2 parts"),
        ({**dataset(), "source": "mock"}, "/dataset/of", "draws from no parts"),
    ],
)
def test_a_mistake_is_one_error_with_its_place(mixes: Any, look: Any, given: Any, pointer: str, message: str) -> None:
    said = look("run", job(mixes, "wrong", dataset=given), "--json", "--in-process")
    assert said.code == 2
    (error,) = json.loads(said.out)["errors"]
    assert error["pointer"] == pointer, error
    assert message in error["message"]
    assert error["hint"]
