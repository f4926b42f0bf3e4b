"""Runs that the installed command hands to an engine, and launches that a test makes by itself."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import curve_trainer
from command_line import Said
from fork_server import ran
from waiting import wait_until

from hostcore_hookspecs import LaunchContext, LaunchHandle, LaunchStatus
from hostcore_hookspecs.job import Job, Resources

OVER = ("succeeded", "failed", "cancelled", "preempted", "lost")
#: Variables that one engine would have taken from another, and those that change where runs go.
NOT_PASSED_ON = ("HOSTCORE_", "RAY_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "OMP_NUM_THREADS")


def launch_context(
    run_dir: str | Path, command: Sequence[str] = (sys.executable, "-c", "print('it runs')"), **changes: Any
) -> LaunchContext:
    """A launch as the host describes it.

    :param changes: Of the context; ``resources`` as a dictionary, and ``run_id``, are those of the job.
    """
    resources = Resources(**changes.pop("resources", {}))
    job = Job(run_id=changes.pop("run_id", "run"), trainer="meta", resources=resources)
    names = {"launch_id": f"{job.run_id}.1", "name": job.run_id, "run_dir": str(run_dir), "job_path": ""}
    return LaunchContext(**{**names, "job": job, "command": [*command], "env": {}, "log": lambda _: None, **changes})


@attrs.frozen(kw_only=True)
class EngineRun:
    """A run that was handed to an engine."""

    path: Path
    launcher: Any
    #: What the command that submitted it printed.
    submitted: Said

    @property
    def handle(self) -> LaunchHandle:
        return LaunchHandle(**json.loads((self.path / "config" / "launch.json").read_text())["handle"])

    @property
    def result(self) -> dict[str, Any]:
        return dict(json.loads((self.path / "result.json").read_text()))

    @property
    def log(self) -> str:
        """What all nodes have printed, as the launcher gives it."""
        text, since, handle = "", "", self.handle
        while (chunk := self.launcher.read_logs(handle, since)).text:
            text, since = text + chunk.text, chunk.next
        return text

    @property
    def world_sizes(self) -> list[int]:
        """Of the attempts that have begun to train."""
        return [event["world_size"] for event in self.events("run_started")]

    def events(self, name: str) -> list[dict[str, Any]]:
        file = self.path / "logs" / "events.jsonl"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("\n")]  # the last may be being written
        return [event for event in found if event["event"] == name]

    def losses(self, attempt: int = 1) -> dict[int, float]:
        """What an attempt has recorded of each of its steps."""
        told = [event for event in self.events("metrics") if event["attempt"] == attempt]
        return {event["step"]: event["metrics"]["train/loss"] for event in told}

    def python(self, rank: int) -> Path:
        """The Python that the worker of a rank has printed."""
        return Path((self.path / "logs" / f"rank-{rank}.attempt-1.log").read_text().splitlines()[0])

    def poll(self) -> LaunchStatus:
        status: LaunchStatus = self.launcher.poll(self.handle)
        return status

    def cancel(self) -> None:
        self.launcher.cancel(self.handle, 300.0)

    def trains(self) -> None:
        """Wait for its first steps."""
        wait_until(lambda: self.events("metrics"), f"the first steps of {self.path.name}", found=lambda: self.log)

    def until(self, status: str) -> LaunchStatus:
        """Wait until the launcher says so; any other end is an error."""

        def said() -> LaunchStatus | None:
            found = self.poll()
            assert found.status == status or found.status not in OVER, f"{found}\n{self.log}"
            return found if found.status == status else None

        found: LaunchStatus = wait_until(said, f"{self.path.name} to be {status}", found=lambda: self.log)
        return found


@attrs.frozen(kw_only=True)
class Engine:
    """A user's folder, whose jobs go to an engine. Each test has run ids of its own."""

    path: Path
    #: The launcher, as a process has it that polls.
    launcher: Any
    #: The section ``launcher`` of the jobs.
    section: Mapping[str, Any]
    runs: list[EngineRun] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        shutil.copy(curve_trainer.__file__, self.path)

    def hostcore(self, *words: str | Path, **variables: str) -> Said:
        """Call the command to its end."""
        around = {name: value for name, value in os.environ.items() if not name.startswith(NOT_PASSED_ON)}
        done = ran(words, cwd=self.path, env={**around, **variables}, text=True)
        return Said(code=done.returncode, out=done.stdout, err=done.stderr)

    def submit(self, run_id: str, *, variables: Mapping[str, str] = {}, **keys: Any) -> EngineRun:
        """Submit a job with ``hostcore run --detach``."""
        submitted = self.submission(run_id, variables=variables, **keys)
        assert submitted.code == 0, submitted.err
        self.runs.append(EngineRun(path=self.path / "runs" / run_id, launcher=self.launcher, submitted=submitted))
        return self.runs[-1]

    def submission(self, run_id: str, *, variables: Mapping[str, str] = {}, **keys: Any) -> Said:
        """What the command says that submits a job."""
        job = {
            "trainer": "curve_trainer:Trainer",
            "run_id": run_id,
            "max_steps": 20,
            "metric_every": 1,
            "terminal": False,
            "device": "cpu",
            "grace_seconds": 300,  # on a busy machine, ranks agree slowly on the step they stop at
            **keys,
            "launcher": {**self.section, **keys.get("launcher", {})},
        }
        (self.path / f"{run_id}.json").write_text(json.dumps(job))
        return self.hostcore("run", f"{run_id}.json", "--detach", **variables)

    def end_all(self) -> None:
        """End what a test that failed has left."""
        for run in self.runs:
            self.launcher.cancel(run.handle, 0.0)
