"""What a plugin leaves running, and what a run must not pick up or leave behind."""

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fork_server import run

LINGERING = """
import subprocess, sys, threading
from pathlib import Path
from small_trainer import Trainer

class WithAThread(Trainer):
    '''Starts a thread that never ends, as trackers do.'''
    def setup(self, ctx):
        threading.Thread(target=threading.Event().wait, daemon=False).start()

class WithAChild(Trainer):
    '''Starts a process that outlives it, as data loaders do.'''
    def setup(self, ctx):
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        Path(f"{ctx.job.run_id}.child").write_text(str(child.pid))
"""


def is_gone(pid: int) -> bool:
    try:
        # Z: killed, and not yet waited for by whoever has inherited it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second, when it goes between opening and reading
        return True


@pytest.fixture(scope="module")
def lingering(project) -> Mapping[str, Any]:
    """The finished commands of runs whose trainers leave something running."""
    (project.path / "lingering.py").write_text(LINGERING)
    started = {}
    for name in ("WithAThread", "WithAChild"):
        job = project.job(f"{name}.json", run_id=name, trainer=f"lingering:{name}", max_steps=3)
        started[name] = project.start("run", job)
    return {name: command.end() for name, command in started.items()}


def test_a_thread_of_a_plugins_does_not_keep_the_run_from_ending(lingering: Mapping, project) -> None:
    assert lingering["WithAThread"].code == 0
    assert project.run("WithAThread").result["status"] == "succeeded"
    assert project.run("WithAThread").result["requested_by"] is None


def test_a_process_of_a_plugins_does_not_outlive_the_run(lingering: Mapping, project, until: Callable) -> None:
    assert lingering["WithAChild"].code == 0
    pid = int((project.path / "WithAChild.child").read_text())
    until(lambda: is_gone(pid), "the end of the process that the trainer started")


def test_a_closed_terminal_preempts_the_run(project, until: Callable) -> None:
    job = project.job("hup.json", run_id="hup", trainer="small_trainer:Slow", max_steps=10**6, metric_every=1)
    command = project.start("run", job)
    until((project.path / "hup.pid").exists, "the third step")
    command.signal(signal.SIGHUP)
    assert command.end().code == 75
    result = project.run("hup").result
    assert (result["status"], result["reason"]) == ("preempted", "the terminal was closed")
    assert result["final_checkpoint"]


def test_a_job_that_ends_before_the_run_stands_is_refused_and_changes_nothing(project) -> None:
    assert project.command("run", project.job("past.json", run_id="past", max_steps=6)).code == 0
    before = project.run("past").tree()
    assert "finished before" in project.command("run", "past.json", "--set", "max_steps=4").out
    assert project.run("past").tree() == before
    (project.run("past").path / "result.json").unlink()  # as after a crash: the run is to go on
    refused = project.command("run", "past.json", "--set", "max_steps=4")
    assert refused.code == 2
    assert "the run is at step 6 already, and the job ends at step 4" in refused.err


def test_one_folder_of_checkpoints_never_serves_two_runs(project) -> None:
    shared = project.path / "shared"
    job = project.job("first.json", run_id="first", max_steps=4)
    environment = {"WORKER_MODE": "trainer", "TRAINER_CHECKPOINTS_DIR": str(shared)}

    def entrypoint(job: Any) -> "subprocess.CompletedProcess[str]":
        return run(
            [sys.executable, "-m", "hostcore.entrypoint"],
            cwd=project.path,
            env={**project.environment, **environment, "TRAINER_JOB_SPEC_PATH": str(job)},
            text=True,
        )

    assert entrypoint(job).returncode == 0
    before = sorted(path.name for path in shared.rglob("*"))
    second = entrypoint(project.job("second.json", run_id="second", max_steps=8))
    assert second.returncode == 2
    assert "the checkpoints here belong to the run 'first', not to 'second'" in second.stderr
    assert sorted(path.name for path in shared.rglob("*")) == before
    assert not project.run("second").path.exists()
