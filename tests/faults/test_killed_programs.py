"""A run of the trainer ``process`` whose program, of another Python than the host, is killed again and again."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import ROOT
from fork_server import hostcore
from started import workers_of
from thoroughness import points
from waiting import wait_until

from hostcore_builtin_plugins.processes import children

PROGRAM = ROOT / "example_trainers/linear/python/linear.py"
KILLS = points(8, long=60)
STEPS_BETWEEN = 15
STEPS = STEPS_BETWEEN * (KILLS + 1)
#: Makes as many steps as a file allows, and waits there: a run that is quick is not over before its last kill.
CALLBACK = """
import time
from pathlib import Path

class Allowed:
    def on_batch_begin(self, run_state):
        while run_state.step >= int(Path("steps-allowed").read_text()):
            time.sleep(0.01)
"""
UV = (sys.executable, "-m", "uv")


def pythons() -> list[str]:
    """Pythons of this machine, of other versions than this one."""
    minors = [minor for minor in range(8, 20) if minor != sys.version_info.minor]
    places = [*map(str, Path.home().glob(".pyenv/versions/*/bin")), *os.environ["PATH"].split(":")]
    found = [shutil.which(f"python3.{minor}", path=place) for minor in minors for place in places]
    return [one for one in found if one]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python of another version, with pyarrow and without hostcore."""
    folder = tmp_path_factory.mktemp("python")
    for one in pythons():
        made = subprocess.run([*UV, "venv", "--no-project", "--clear", "--python", one, str(folder)], check=False)
        if made.returncode:
            continue
        own = str(folder / "bin/python")
        installed = subprocess.run([*UV, "pip", "install", "--python", own, "pyarrow"], check=False)
        if not installed.returncode:
            return own
    pytest.skip("no Python of another version here can have pyarrow")


def start(folder: Path, run_id: str, python: str) -> "subprocess.Popen[Any]":
    job = {
        "trainer": "process",
        "run_id": run_id,
        "hyperparams": {
            "command": ["python", str(PROGRAM)],
            "settings": {"columns": ["a", "b"], "target": "y", "learning_rate": 0.05},
        },
        "environment": {"used_by": "programs", "interpreter": python},
        "callbacks": ["allowed:Allowed"],
        "dataset": {"parquet_paths": ["rows.parquet"], "batch_size": 16, "shuffle": True},
        "max_steps": STEPS,
        "metric_every": 1,
        "checkpoint_every": 1,
        "device": "cpu",
        "terminal": False,
    }
    (folder / f"{run_id}.json").write_text(json.dumps(job))
    around = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
    return hostcore(["run", f"{run_id}.json"], cwd=folder, env=around, stdout=-1, stderr=-2, text=True)


def metrics(folder: Path, run_id: str) -> list[tuple[int, float]]:
    """Step and loss of every event, of all attempts."""
    log = folder / "runs" / run_id / "logs/events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
    events = [orjson.loads(line) for line in lines if line.endswith(b"\n")]
    return [(event["step"], event["metrics"]["train/loss"]) for event in events if event["event"] == "metrics"]


def allow(folder: Path, steps: int) -> None:
    """Let runs come to a step. The file is whole whenever it is read."""
    new = folder / "steps-allowed.new"
    new.write_text(str(steps))
    new.replace(folder / "steps-allowed")


def program_of(supervisor: int) -> int | None:
    """The program of a run, which is the worker's child."""
    for worker in workers_of(supervisor):
        for pid in children(worker):
            return pid
    return None


def test_it_is_killed_again_and_again_and_its_losses_are_those_of_a_run_that_was_not(
    python: str, tmp_path: Path
) -> None:
    chance = random.Random(7)
    rows = {name: [chance.gauss(0, 1) for _ in range(240)] for name in "aby"}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet", row_group_size=60)
    (tmp_path / "allowed.py").write_text(CALLBACK)
    allow(tmp_path, STEPS)
    whole = start(tmp_path, "whole", python)
    said, _ = whole.communicate(timeout=900)
    assert whole.returncode == 0, said
    losses = dict(metrics(tmp_path, "whole"))
    assert len(losses) == STEPS

    for kill in range(KILLS):
        allow(tmp_path, STEPS_BETWEEN * (kill + 1))
        run = start(tmp_path, "killed", python)
        enough = STEPS_BETWEEN * kill + chance.randint(1, STEPS_BETWEEN)
        wait_until(
            lambda run=run, enough=enough: (
                run.poll() is not None or max(dict(metrics(tmp_path, "killed")), default=0) >= enough
            ),
            f"step {enough}",
        )
        # In turns the program, as a defect in it would end it, and its worker.
        pid = program_of(run.pid) if kill % 2 else next(iter(workers_of(run.pid)), None)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        allow(tmp_path, STEPS)  # a worker that waits goes on, to find its program gone
        said, _ = run.communicate(timeout=900)
        assert run.returncode != 0
        assert "Traceback" not in said
    run = start(tmp_path, "killed", python)
    said, _ = run.communicate(timeout=900)
    assert run.returncode == 0, said
    assert dict(metrics(tmp_path, "killed")) == losses
    assert all(loss == losses[step] for step, loss in metrics(tmp_path, "killed"))
