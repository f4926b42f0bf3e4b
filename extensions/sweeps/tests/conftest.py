"""A folder with a sweep of a tiny trainer, and the command."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import attrs
import pytest
from command_line import Said
from fork_server import hostcore, ran

JOB = {
    "trainer": "quadratic:Trainer",
    "mock_batches": [1],
    "max_steps": 20,
    "metric_every": 1,
    "checkpoint_every": 5,
    "device": "cpu",
}
SWEEP: dict[str, Any] = {
    "sweep_id": "walk",
    "job": "job.json",
    "space": {"/hyperparams/lr": {"log_uniform": [0.001, 0.9]}},
    "objective": {"metric": "train/loss", "mode": "min"},
    "limits": {"trials": 3, "parallel": 2},
}


@attrs.frozen
class Place:
    """A folder with a job, a sweep, and what comes of it."""

    path: Path

    @classmethod
    def make(cls, path: Path) -> "Place":
        path.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(__file__).with_name("quadratic.py"), path)
        place = cls(path)
        place.job()
        place.sweep()
        return place

    def job(self, **keys: Any) -> Path:
        """Write the job file."""
        file = self.path / "job.json"
        file.write_text(json.dumps({**JOB, **keys}))
        return file

    def sweep(self, **keys: Any) -> Path:
        """Write the sweep file."""
        file = self.path / "sweep.json"
        file.write_text(json.dumps({**SWEEP, **keys}))
        return file

    @property
    def environment(self) -> dict[str, str]:
        taken = ("HOSTCORE_RUNS_DIR", "HOSTCORE_SWEEPS_DIR", "HOSTCORE_SERVER")
        return {name: value for name, value in os.environ.items() if name not in taken}

    def hostcore(self, *words: str) -> Said:
        """Call the command to its end."""
        done = ran(words, cwd=self.path, env=self.environment, text=True, timeout=900)
        return Said(code=done.returncode, out=done.stdout, err=done.stderr)

    def start(self, *words: str) -> "subprocess.Popen[Any]":
        """Start the command."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        return hostcore(words, cwd=self.path, env=self.environment, **streams)

    def status(self, sweep: str = "walk") -> Any:
        """What ``hostcore sweep status --json`` prints."""
        return self.hostcore("sweep", "status", sweep, "--json").json

    def trials(self, sweep: str = "walk") -> list[tuple[Any, ...]]:
        """What became of each trial, without what differs from one time to the next."""
        return [
            (row["number"], row["run_id"], row["state"], row["values"], row["objective"], row["step"])
            for row in self.status(sweep)["trials"]
        ]

    def run_ids(self) -> list[str]:
        """The run directories that there are."""
        return sorted(path.name for path in (self.path / "runs").iterdir())


@pytest.fixture(scope="session")
def make_place() -> type[Place]:
    """Makes folders."""
    return Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A new folder."""
    return Place.make(tmp_path / "place")
