"""Killed while its table grows, and resumed: the same rows, metrics and state, to the last bit."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import deltalake
import lance
import pytest
import torch
from fork_server import ran
from row_trainer import job
from source_examples import SAVED, flights

from hostcore.checkpoints.state import read_state

HERE = Path(__file__).parents[1]


def told(run: Path) -> dict[int, dict[str, float]]:
    """All recorded metrics by step; of steps that were made twice, both must be the same."""
    found: dict[int, dict[str, float]] = {}
    for line in (run / "logs/events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "metrics":
            assert found.setdefault(event["step"], event["metrics"]) == event["metrics"]
    return found


def last_state(run: Path) -> Any:
    """The state of the last checkpoint, numbers to the last bit."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        return value.tolist() if isinstance(value, torch.Tensor) else value

    return plain(read_state(max(one for one in (run / "checkpoints").glob("step-*") if one.is_dir()), "state"))


@pytest.mark.parametrize("source", list(SAVED))
def test_a_killed_run_goes_on_bit_for_bit(source: str, tmp_path: Path) -> None:
    shutil.copy(HERE / "row_trainer.py", tmp_path)
    settings = SAVED[source](tmp_path)
    (tmp_path / "job.json").write_text(json.dumps(job(source, settings, checkpoint_every=4)))
    around = {**os.environ, "OMP_NUM_THREADS": "1", "HOSTCORE_CACHE_DIR": str(tmp_path / "cache")}

    def run(name: str, **more: str) -> Any:
        command = ["run", "job.json", "--set", f"run_id={name}"]
        return ran(command, cwd=tmp_path, env=around | more, text=True)

    said = run("whole")
    assert said.returncode == 0, said.stdout + said.stderr
    killed = {"KILL_AT": "30", "KILL_MARK": str(tmp_path / "mark")}
    assert run("killed", **killed).returncode != 0
    assert f"{signal.SIGKILL.name}" in (tmp_path / "runs/killed/result.json").read_text()
    if source == "lance":
        lance.write_dataset(flights(0, 500), settings["path"], mode="append")
    elif source == "delta":
        deltalake.write_deltalake(settings["path"], flights(0, 500), mode="append")
    elif source == "duckdb":
        shutil.rmtree(tmp_path / "cache")  # the rows of the query are made again
    said = run("killed", **killed)
    assert said.returncode == 0, said.stdout + said.stderr
    assert told(tmp_path / "runs/killed") == told(tmp_path / "runs/whole")
    assert last_state(tmp_path / "runs/killed") == last_state(tmp_path / "runs/whole")
    said = ran(["verify", "runs/killed"], cwd=tmp_path, env=around, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
