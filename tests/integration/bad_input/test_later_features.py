"""What a later version will do is refused, never ignored: a run must not look like what it is not."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hostcore.cli import cli
from hostcore.job.load import LATER

DATA = {"parquet_paths": ["x.parquet"]}
#: A value other than the default for every key of the table.
ASKED: dict[str, Any] = {
    "/environment": {"requirements": ["numpy"]},
}


def job_asking(pointer: str, value: Any) -> dict[str, Any]:
    job: dict[str, Any] = {"trainer": "some-trainer", "dataset": dict(DATA)}
    *outer, key = pointer.removeprefix("/").split("/")
    (job[outer[0]] if outer else job)[key] = value
    return job


def errors_about(job: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What ``run`` says, called in this process: nothing of it depends on the process."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("HOSTCORE_RUNS_DIR", raising=False)
    Path("job.json").write_text(json.dumps(job))
    answer = CliRunner().invoke(cli, ["run", "job.json", "--json"])
    assert answer.exit_code == 2
    assert not Path("runs").exists()
    return list(json.loads(answer.stdout)["errors"])


def test_there_is_an_example_for_every_key_of_the_table() -> None:
    assert set(ASKED) == {f"/{key}" for key in LATER}


@pytest.mark.parametrize("pointer", ASKED)
def test_a_key_of_a_later_version_is_refused(pointer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (error,) = errors_about(job_asking(pointer, ASKED[pointer]), tmp_path, monkeypatch)
    assert error["code"] == "job.not_yet"
    assert error["pointer"] == pointer
    assert "not there yet in this version of hostcore" in error["message"]
    assert error["hint"] == "remove the key"


def test_the_defaults_of_later_keys_may_be_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {"accumulate": 1, "precision": "fp32", "samples": [], "launcher": "local", "global_batch_size": 32}
    job = {**job_asking("/dataset/readahead", 2), **defaults, "devices": ["cpu"], "sample_every": 200}
    (error,) = errors_about(job, tmp_path, monkeypatch)
    assert error["code"] == "plugin.unknown"  # the job is well-formed; it is the trainer that is not installed


def test_all_keys_of_a_later_version_are_told_at_once(workplace: Any) -> None:
    job: dict[str, Any] = {"trainer": "some-trainer", "dataset": dict(DATA)}
    for pointer, value in ASKED.items():
        *outer, key = pointer.removeprefix("/").split("/")
        (job[outer[0]] if outer else job)[key] = value
    workplace.write(job)
    answer = workplace.hostcore("run", "job.json", "--json")
    assert {error["pointer"] for error in answer.errors} == set(ASKED)
    assert workplace.tree() == {}
