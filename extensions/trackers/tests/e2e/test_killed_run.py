"""A supervisor that is killed in the middle of a real run, and what the trackers have after the run was resumed."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import wait_until

from hostcore_trackers.wandb.files import RunFile, rows_of

TRAINER = """
    import time
    import torch
    from hostcore_hookspecs import StepResult

    class Trainer:
        def setup(self, ctx): torch.set_num_threads(1)
        def configure(self, ctx): return {"x": torch.zeros(1)}
        def prepare_batch(self, raw_batch, state, ctx): return raw_batch
        def train_step(self, prepared_batch, state, ctx):
            state["x"] += 1
            time.sleep(0.05)
            return StepResult(metrics={"loss": float(state["x"])})
        def state_dict(self, state): return dict(state)
        def load_state_dict(self, state, payload, ctx): state.update(payload)
"""
STEPS = 60


class Workshop:
    """A folder with a job that both trackers are told of."""

    def __init__(self, path: Path) -> None:
        self.path, self.run = path, path / "runs" / "a"
        (path / "trainer.py").write_text(textwrap.dedent(TRAINER))
        reporters: list[dict[str, Any]] = [
            {"use": "wandb", "mode": "offline", "project": "p", "timeout_seconds": 120.0},
            {"use": "trackio", "dir": str(path / "trackio"), "project": "p", "timeout_seconds": 120.0},
        ]
        job = {
            "trainer": "trainer:Trainer",
            "run_id": "a",
            "max_steps": STEPS,
            "metric_every": 1,
            "checkpoint_every": 7,
        }
        (path / "job.json").write_text(json.dumps({**job, "device": "cpu", "reporters": reporters}))

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "hostcore", *arguments]
        with (self.path / "output.txt").open("ab") as output:
            return subprocess.Popen(command, cwd=self.path, stdout=output, stderr=output, start_new_session=True)

    @property
    def wandb_files(self) -> list[Path]:
        return sorted(self.run.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.parent.name)

    def in_wandb(self) -> list[dict[str, Any]]:
        rows = [row for path in self.wandb_files for row in rows_of(RunFile(path).new_records())]
        return [row.values for row in rows if "train/loss" in row.values]

    def in_trackio(self) -> list[tuple[int, float]]:
        if not (database := self.path / "trackio" / "p.db").exists():
            return []
        with closing(sqlite3.connect(database)) as opened, suppress(sqlite3.OperationalError):
            query = """SELECT step, json_extract(metrics, '$."train/loss"') AS loss FROM metrics
                       WHERE loss IS NOT NULL ORDER BY step"""
            return opened.execute(query).fetchall()
        return []


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def test_a_run_whose_supervisor_was_killed_goes_on_in_the_same_runs_with_each_step_once(workshop: Workshop) -> None:
    killed = workshop.start("run", "job.json")
    wait_until(
        lambda: len(workshop.in_wandb()) > 20 and len(workshop.in_trackio()) > 20, "twenty steps in both trackers"
    )
    started = psutil.Process(killed.pid).children(recursive=True)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    wait_until(lambda: not any(_is_alive(process) for process in started), "all that it had started to end")
    (first,) = workshop.wandb_files
    assert [one.exit.exit_code for one in RunFile(first).new_records() if one.HasField("exit")] == [1]

    resumed = workshop.start("resume", "a")
    assert resumed.wait() == 0, (workshop.path / "output.txt").read_text()
    expected = [(step, float(step)) for step in range(1, STEPS + 1)]
    assert [(row["host/step"], row["train/loss"]) for row in workshop.in_wandb()] == expected
    assert workshop.in_trackio() == expected
    assert len({path.name for path in workshop.wandb_files}) == 1, "one run, of two attempts"
    with closing(sqlite3.connect(workshop.path / "trackio" / "p.db")) as opened:
        assert opened.execute("SELECT count(DISTINCT run_id) FROM metrics").fetchone() == (1,)
    assert (workshop.run / "logs" / "events.jsonl").read_text().count("reporter_failed") == 0


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
