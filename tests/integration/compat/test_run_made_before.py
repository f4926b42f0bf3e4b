"""Run directories of earlier versions: they are read, verified and resumed.

Each folder holds a run that failed after its fourth step. The reporter ``tensorboard`` of ``run_made_before`` was part
of ``hostcore-builtin-plugins`` then; the others validate, and have a callback with state. None of their records holds
the plan, which later ones do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fork_server import ran

from hostcore.checkpoints.find import load_record
from hostcore.checkpoints.state import read_state

DATA = Path(__file__).parent / "data"
#: Where it was made, as its records say.
FOLDER = "/tmp/hostcore-old"

Ran = subprocess.CompletedProcess[str]


@pytest.fixture(params=["run_made_before", "run_made_by_346989e", "run_made_by_1e01314"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Folder of the job, with the run in ``runs/old``."""
    shutil.copytree(DATA / request.param, tmp_path, dirs_exist_ok=True)
    (tmp_path / "runs").mkdir()
    (tmp_path / "old").rename(tmp_path / "runs" / "old")
    record = tmp_path / "runs" / "old" / "config" / "run.json"
    record.write_text(record.read_text().replace(FOLDER, str(tmp_path)))
    return tmp_path


@pytest.fixture
def hostcore(folder: Path) -> Callable[..., Ran]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
    return lambda *arguments: ran(arguments, cwd=folder, env=environment, text=True)


def told(folder: Path) -> list[int]:
    """The numbers of the events that the reporter ``jsonl`` has written."""
    return [json.loads(line)["seq"] for line in (folder / "told.jsonl").read_text().splitlines()]


def test_is_shown_and_verified(hostcore: Callable[..., Ran], folder: Path) -> None:
    status = json.loads(hostcore("status", "old", "--json").stdout)
    assert (status["status"], status["step"], status["error"]["message"]) == ("failed", 4, "asked to fail")
    log = (folder / "runs" / "old" / "logs" / "events.jsonl").read_text()
    assert hostcore("logs", "old").stdout.count("\n") == log.count("\n") >= 5
    verified = hostcore("verify", "old")
    assert verified.returncode == 0, verified.stdout


def test_goes_on_where_it_stopped_and_ends_as_one_that_was_not_interrupted(
    hostcore: Callable[..., Ran], folder: Path
) -> None:
    before = told(folder)
    resumed = hostcore("resume", "old")
    assert resumed.returncode == 0, resumed.stderr
    assert hostcore("run", "job.json", "--set", "run_id=new", "--set", "reporters=[]").returncode == 0
    states = [
        read_state(load_record(folder / "runs" / run / "checkpoints" / "step-000006.json").folder, "state")
        for run in ("old", "new")
    ]
    assert states[0]["seen"].tolist() == states[1]["seen"].tolist()
    assert states[0]["seen"][0] == 6
    after = told(folder)
    assert after[: len(before)] == before
    assert after == list(range(1, len(after) + 1)), "no event is told twice"
    assert "reporter.cursor" not in (folder / "runs" / "old" / "logs" / "events.jsonl").read_text()
    assert hostcore("verify", "old").returncode == 0
