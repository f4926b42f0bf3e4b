"""Runs on two ranks, by the installed command and by torchrun, in a folder of the user's."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from command_line import COMMAND, Said, said_by
from fork_server import popen
from waiting import is_gone, wait_until

HERE = Path(__file__).parent
#: What the installed ``torchrun`` is; so it begins as a fork.
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
#: What one torchrun would have taken from another, and what changes where the runs go.
_NOT_PASSED_ON = ("HOSTCORE_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "OMP_NUM_THREADS")


@attrs.frozen
class Run:
    """A run's directory."""

    path: Path

    @property
    def result(self) -> dict[str, Any]:
        return orjson.loads((self.path / "result.json").read_bytes())

    @property
    def events(self) -> list[dict[str, Any]]:
        return self._lines("events.jsonl")

    def of_rank(self, rank: int) -> list[dict[str, Any]]:
        """What a rank has written itself."""
        return self._lines(f"rank-{rank}.attempt-1.jsonl")

    def _lines(self, name: str) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in (self.path / "logs" / name).read_bytes().splitlines()]

    @property
    def names(self) -> list[str]:
        return [event["event"] for event in self.events]

    def output(self, rank: int) -> str:
        return (self.path / "logs" / f"rank-{rank}.attempt-1.log").read_text()

    @property
    def pids(self) -> list[int]:
        """The workers, once both have come to their third step."""
        files = [self.path.parent.parent / f"{self.path.name}.rank-{rank}.pid" for rank in range(2)]
        wait_until(lambda: all(file.exists() for file in files), f"the third step of {self.path.name}")
        return [int(file.read_text()) for file in files]


@attrs.frozen
class Folder:
    """A user's folder with the trainer, jobs and runs."""

    path: Path
    started: list["subprocess.Popen[str]"] = attrs.field(factory=list)

    def job(self, run_id: str, **keys: Any) -> str:
        """Write a job file on two ranks; its name."""
        job = {"trainer": "pair_trainer:Trainer", "run_id": run_id, "max_steps": 20, "terminal": False, **keys}
        job = job if "device" in job else {"devices": ["cpu", "cpu"], **job}
        (self.path / f"{run_id}.json").write_text(json.dumps(job))
        return f"{run_id}.json"

    def start(self, *command: str) -> "subprocess.Popen[str]":
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED_ON)}
        process = popen(
            command, cwd=self.path, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def hostcore(self, *arguments: str) -> "subprocess.Popen[str]":
        return self.start(COMMAND, *arguments)

    def torchrun(self, job: str, *options: str) -> "subprocess.Popen[str]":
        """Start the job by torchrun, as one agent of one or several."""
        return self.start(*TORCHRUN, *options, "-m", "hostcore", "run", job)

    def run(self, run_id: str) -> Run:
        return Run(self.path / "runs" / run_id)


@pytest.fixture(scope="session")
def finish() -> Callable[..., Said]:
    """See ``said_by``."""
    return said_by


@pytest.fixture(scope="session")
def gone() -> Callable[[Sequence[int]], bool]:
    """``gone(pids)``: whether none of these processes runs any more."""
    return lambda pids: all(is_gone(pid) for pid in pids)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """A folder that the tests of a module share; each of them has run ids of its own."""
    made = Folder(tmp_path_factory.mktemp("ranks"))
    shutil.copy(HERE / "pair_trainer.py", made.path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()  # its workers end by themselves then
            process.communicate()
