"""Runs over each source: every row once an epoch, exact when they go on, refused when the data is other data."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import datasets
import deltalake
import lance
import pyarrow.parquet as pq
import pytest
from fork_server import ran
from row_trainer import RowTrainer, job
from source_examples import ROWS, SAVED, flights

import hostcore
from hostcore_hookspecs import HostcoreError

NAMES = tuple(SAVED)
HERE = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return {name: save(tmp_path_factory.mktemp(name)) for name, save in SAVED.items()}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOSTCORE_CACHE_DIR", str(tmp_path / "cache"))


def trained(source: str, settings: dict[str, Any], *, status: str = "succeeded", **keys: Any) -> list[int]:
    """The ids of the rows that a run was given."""
    RowTrainer.seen.clear()
    result = hostcore.run(job(source, settings, **keys))
    assert result.status == status, result.error
    return list(RowTrainer.seen)


@pytest.mark.parametrize("source", NAMES)
def test_a_run_that_goes_on_is_given_the_rows_of_a_run_in_one_piece(source: str, saved, tmp_path: Path) -> None:
    whole = trained(source, saved[source], run_id="whole")
    assert sorted(whole) == sorted([*range(ROWS)] * 2)
    assert whole[:ROWS] != sorted(whole[:ROWS])
    parts = [trained(source, saved[source], run_id="parts", max_steps=steps) for steps in (27, 50)]
    assert [row for part in parts for row in part] == whole
    said = ran(["verify", tmp_path / "runs" / "parts"])
    assert said.returncode == 0, said


@pytest.mark.parametrize("source", ["lance", "delta"])
def test_a_table_that_grows_does_not_change_a_run(source: str, tmp_path: Path) -> None:
    settings = SAVED[source](tmp_path)
    whole = trained(source, settings, run_id="whole")
    parts = trained(source, settings, run_id="parts", max_steps=10)
    if source == "lance":
        lance.write_dataset(flights(0, 500), settings["path"], mode="append")
    else:
        deltalake.write_deltalake(settings["path"], flights(0, 500), mode="append")
    assert parts + trained(source, settings, run_id="parts") == whole
    assert len(trained(source, settings, run_id="new", epochs=1)) == ROWS + 500


@pytest.mark.parametrize("source", NAMES)
def test_other_data_is_refused_when_a_run_goes_on(source: str, tmp_path: Path) -> None:
    settings = SAVED[source](tmp_path)
    trained(source, settings, run_id="run", max_steps=10)
    if source == "datasets":
        datasets.Dataset(flights(1, ROWS + 1)).save_to_disk(settings["path"])
    elif source == "duckdb":
        pq.write_table(flights(1, 901), settings["tables"]["first"])
    else:  # a table of as many versions in its place
        shutil.rmtree(settings["path"])
        SAVED[source](tmp_path)
    with pytest.raises(HostcoreError, match="not the data that the checkpoint was written with: the files changed"):
        hostcore.run(job(source, settings, run_id="run"))


def test_all_that_is_wrong_with_the_data_of_a_job_is_told_at_once(saved, tmp_path: Path) -> None:
    given = job("duckdb", saved["duckdb"] | {"sql": "SELECT idd FROM first"}, run_id="wrong")
    given["validation"] = {"source": "lance", "path": str(tmp_path / "nothing"), "batch_size": 5}
    given["test"] = {"source": "delta", **saved["delta"], "columns": ["id", "dely"], "batch_size": 5}
    (tmp_path / "job.json").write_text(json.dumps(given))
    said = ran(["validate", "job.json"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(HERE)}, text=True)
    assert said.returncode == 2
    text = said.stdout + said.stderr
    assert "Traceback" not in text
    for part in ("line 1, column 8", "/dataset/sql", "/validation/path", "no column 'dely'", "/test/columns/1"):
        assert part in text, text
