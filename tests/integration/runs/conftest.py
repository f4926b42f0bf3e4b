"""Runs by the installed command, in processes of their own; and runs in this one, where a process is not the point."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from click.testing import CliRunner
from command_line import Said, said_by
from fork_server import hostcore
from waiting import wait_until

from hostcore.cli import cli

HERE = Path(__file__).parent


@attrs.frozen
class Command:
    """A command that was started."""

    process: "subprocess.Popen[str]"

    def end(self) -> Said:
        """Wait for its end."""
        return said_by(self.process)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@attrs.frozen
class RunFiles:
    """What lies in a run directory."""

    path: Path

    @property
    def result(self) -> dict[str, Any]:
        return orjson.loads((self.path / "result.json").read_bytes())

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = (self.path / "logs" / "events.jsonl").read_bytes().splitlines(keepends=True)
        return [orjson.loads(line) for line in lines if line.endswith(b"\n")]  # the last may be being written

    def names(self, *, attempt: int | None = None) -> list[str]:
        return [event["event"] for event in self.events if attempt in (None, event["attempt"])]

    def metric(self, name: str = "error") -> dict[int, float | None]:
        return {event["step"]: event["metrics"][name] for event in self.events if event["event"] == "metrics"}

    def rank_log(self, attempt: int = 1) -> str:
        path = self.path / "logs" / f"rank-0.attempt-{attempt}.jsonl"
        return path.read_text() if path.exists() else ""

    def output(self, attempt: int = 1) -> str:
        return (self.path / "logs" / f"rank-0.attempt-{attempt}.log").read_text()

    @property
    def worker_pid(self) -> int:
        """The process of the worker, as its trainer wrote it down."""
        return int((self.path.parent.parent / f"{self.path.name}.pid").read_text())

    def tree(self) -> dict[str, bytes | None]:
        return {
            str(path.relative_to(self.path)): path.read_bytes() if path.is_file() else None
            for path in sorted(self.path.rglob("*"))
        }


@attrs.frozen
class Project:
    """A user's folder: a trainer in a file, jobs, and ``runs``."""

    path: Path
    environment: Mapping[str, str]
    started: list["subprocess.Popen[str]"] = attrs.field(factory=list)

    def job(self, name: str = "job.json", **keys: Any) -> Path:
        """Write a job file of ``small_trainer:Trainer``."""
        job = {"trainer": "small_trainer:Trainer", "device": "cpu", "run_id": "a", "terminal": False, **keys}
        path = self.path / name
        path.write_text(json.dumps(job))
        return path

    def start(self, *arguments: str | Path, **environment: str) -> Command:
        """Start ``hostcore`` in the folder."""
        process = hostcore(
            arguments,
            cwd=self.path,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return Command(process)

    def command(self, *arguments: str | Path, **environment: str) -> Said:
        """Run ``hostcore`` in the folder."""
        return self.start(*arguments, **environment).end()

    def run(self, run_id: str = "a") -> RunFiles:
        return RunFiles(self.path / "runs" / run_id)

    def copy(self, run_id: str, name: str) -> RunFiles:
        """A copy of a run, to go on with without changing the run that other tests look at."""
        shutil.copytree(self.run(run_id).path, self.run(name).path)
        return self.run(name)

    def clean_up(self) -> None:
        """End what a failed test has left; its workers end by themselves then."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()


def make_project(path: Path, environment: Mapping[str, str] | None = None) -> Project:
    path.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "small_trainer.py", path)
    clean = {name: value for name, value in (environment or os.environ).items() if not name.startswith("HOSTCORE_")}
    return Project(path, clean)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A folder that the tests of a module share; each of them has run ids of its own."""
    made = make_project(tmp_path_factory.mktemp("project"))
    yield made
    made.clean_up()


@pytest.fixture
def own_project(tmp_path: Path) -> Iterator[Callable[..., Project]]:
    """``own_project(site.environment)``: a folder of the test's own."""
    made: list[Project] = []

    def make(environment: Mapping[str, str] | None = None) -> Project:
        made.append(make_project(tmp_path / "project", environment))
        return made[-1]

    yield make
    for each in made:
        each.clean_up()


@pytest.fixture(scope="session")
def until() -> Callable[..., Any]:
    """See ``wait_until``."""
    return wait_until


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of runs in this process, which finds the trainers of this suite; shared by the tests of a module."""
    folder = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOSTCORE_RUNS_DIR", str(folder / "runs"))
        patch.chdir(folder)
        patch.syspath_prepend(str(HERE))
        yield folder / "runs"
    written = {name for name, module in sys.modules.items() if str(folder) in str(getattr(module, "__file__", ""))}
    for name in ("exact_trainer", "small_trainer", *written):  # another module's tests may write one of this name
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def look(here: Path) -> Callable[..., Said]:
    """``look("status", "a")``: a command in this process, in the folder of its runs."""

    def call(*arguments: str | Path) -> Said:
        words = [str(one) for one in arguments]
        result = CliRunner().invoke(cli, words, prog_name="hostcore", catch_exceptions=False)
        return Said(code=result.exit_code, out=result.stdout, err=result.stderr)

    return call


@pytest.fixture(scope="module")
def run_here(look: Callable[..., Said]) -> Callable[..., Said]:
    """``run_here("a", "--json", max_steps=3)``: ``hostcore run`` of a job of the small trainer, in this process."""

    def start(run_id: str, *options: str, **keys: Any) -> Said:
        job = {"trainer": "small_trainer:Trainer", "device": "cpu", "terminal": False, "run_id": run_id, **keys}
        Path(f"{run_id}.json").write_text(json.dumps(job))
        return look("run", f"{run_id}.json", "--in-process", *options)

    return start


@pytest.fixture(scope="module")
def events_of(here: Path) -> Callable[..., list[dict[str, Any]]]:
    """``events_of("a", "warning")``: the events of that name in the log of a run in this process."""
    return lambda run_id, name: [one for one in RunFiles(here / run_id).events if one["event"] == name]
