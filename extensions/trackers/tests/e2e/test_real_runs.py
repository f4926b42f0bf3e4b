"""Real runs with trackers: a supervisor that is killed in the middle, and a server that is away."""

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

from hostcore_trackers.wandb.session import RunFile, rows_of

TRAINER = """
    import time
    from pathlib import Path
    import torch
    from hostcore_hookspecs import StepResult

    class Trainer:
        def setup(self, ctx): torch.set_num_threads(1)
        def configure(self, ctx): return {"x": torch.zeros(1)}
        def prepare_batch(self, raw_batch, state, ctx): return raw_batch
        def train_step(self, prepared_batch, state, ctx):
            state["x"] += 1
            while state["x"] > 30 and not Path(__file__).with_name("go").exists():
                time.sleep(0.05)
            return StepResult(metrics={"loss": float(state["x"])})
        def state_dict(self, state): return dict(state)
        def load_state_dict(self, state, payload, ctx): state.update(payload)
"""
STEPS = 60
KEY = "0123456789abcdef0123456789abcdef01234567"


class Workshop:
    """A folder with a trainer and a run of it."""

    def __init__(self, path: Path) -> None:
        self.path, self.run = path, path / "runs" / "a"
        (path / "trainer.py").write_text(textwrap.dedent(TRAINER))

    def go(self) -> None:
        """Let runs go beyond step 30."""
        (self.path / "go").touch()

    def start_run(self, *reporters: dict[str, Any]) -> "subprocess.Popen[bytes]":
        job = {"trainer": "trainer:Trainer", "run_id": "a", "max_steps": STEPS, "device": "cpu"}
        cadence = {"metric_every": 1, "checkpoint_every": 7}
        (self.path / "job.json").write_text(json.dumps({**job, **cadence, "reporters": reporters}))
        return self.start("run", "job.json")

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "hostcore", *arguments]
        with (self.path / "output.txt").open("ab") as output:
            return subprocess.Popen(command, cwd=self.path, stdout=output, stderr=output, start_new_session=True)

    def replay(self, reporter: str, *options: str) -> None:
        """Tell what is pending. On a busy machine a library starts longer than a call may take, so perhaps twice."""
        replay = ("replay", "a", "--reporter", reporter, "--pending", *options)
        wait_until(lambda: self.start(*replay).wait() == 0, f"{reporter} to take all", found=lambda: self.output)

    @property
    def output(self) -> str:
        return (self.path / "output.txt").read_text()

    @property
    def failures(self) -> int:
        return (self.run / "logs" / "events.jsonl").read_text().count("reporter_failed")

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
    killed = workshop.start_run(
        {"use": "wandb", "mode": "offline", "project": "p", "timeout_seconds": 120.0},
        {"use": "trackio", "dir": str(workshop.path / "trackio"), "project": "p", "timeout_seconds": 120.0},
    )
    wait_until(
        lambda: len(workshop.in_wandb()) > 20 and len(workshop.in_trackio()) > 20, "twenty steps in both trackers"
    )
    started = psutil.Process(killed.pid).children(recursive=True)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    wait_until(lambda: not any(_is_alive(process) for process in started), "all that it had started to end")
    (first,) = workshop.wandb_files
    assert [one.exit.exit_code for one in RunFile(first).new_records() if one.HasField("exit")] == [1]

    workshop.go()
    resumed = workshop.start("resume", "a")
    assert resumed.wait() == 0, workshop.output
    for reporter in ("wandb", "trackio"):
        workshop.replay(reporter)  # what the end of a run does not wait for
    expected = [(step, float(step)) for step in range(1, STEPS + 1)]
    assert [(row["host/step"], row["train/loss"]) for row in workshop.in_wandb()] == expected
    assert workshop.in_trackio() == expected
    assert len({path.name for path in workshop.wandb_files}) == 1, "one run, of two attempts"
    with closing(sqlite3.connect(workshop.path / "trackio" / "p.db")) as opened:
        assert opened.execute("SELECT count(DISTINCT run_id) FROM metrics").fetchone() == (1,)
    assert workshop.failures == 0


def test_a_server_that_is_away_costs_the_run_nothing_and_is_told_all_by_a_replay(
    workshop: Workshop, wandb_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    wandb_server.answers = "503"
    workshop.go()
    run = workshop.start_run({"use": "wandb", "base_url": wandb_server.url, "project": "p", "timeout_seconds": 5.0})
    assert run.wait() == 0, workshop.output
    assert workshop.failures <= 1, "an outage is told once"
    assert "hostcore replay a --reporter wandb --pending" in workshop.output
    wandb_server.answers = "200"
    workshop.replay("wandb", "--set", "timeout_seconds=120")
    ((name, found),) = wandb_server.runs.items()
    assert name.startswith("a-")
    steps = [row["host/step"] for row in found.history if "train/loss" in row]
    assert (steps, found.exit_code) == (list(range(1, STEPS + 1)), 0)
    assert KEY not in workshop.output


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
