"""Environments of their own, as users have them: hostcore, and what is installed with pip beside it."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from fork_server import run


@attrs.frozen
class Environment:
    """A Python with hostcore and plugins, and a folder to work in."""

    folder: Path
    python: str = sys.executable
    variables: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ))

    @classmethod
    def at(cls, folder: Path) -> "Environment":
        """The virtual environment in a folder."""
        return cls(folder, str(folder / "venv/bin/python"))

    @classmethod
    def make(cls, folder: Path) -> "Environment":
        """A virtual environment that sees the packages of this one."""
        venv.create(folder / "venv", symlinks=True)
        (own,) = (folder / "venv").glob("lib/python*/site-packages")
        # Not plain paths: the editable installs of this environment have .pth files of their own.
        lines = [f"import site; site.addsitedir({sysconfig.get_path(name)!r})" for name in ("purelib", "platlib")]
        (own / "host.pth").write_text("\n".join(dict.fromkeys(lines)) + "\n")
        return cls.at(folder)

    def pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", self.python, *arguments, "--quiet"]
        subprocess.run([*command, "--disable-pip-version-check", "--no-input"], check=True)

    def install(self, package: Path) -> None:
        self.pip("install", "--no-index", "--no-deps", "--no-build-isolation", str(package))

    def hostcore(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return run(
            [self.python, "-P", "-m", "hostcore", *arguments],
            cwd=self.folder,
            env={**self.variables, "HOSTCORE_RUNS_DIR": ""},
            text=True,
        )

    def json(self, *arguments: str) -> Any:
        """The document that a command prints with ``--json``."""
        answer = self.hostcore(*arguments, "--json")
        assert "Traceback" not in answer.stderr
        return json.loads(answer.stdout)

    def write(self, job: Mapping[str, Any]) -> None:
        (self.folder / "job.json").write_text(json.dumps(job))

    def run(self, **job: Any) -> "subprocess.CompletedProcess[str]":
        """Run a job."""
        self.write(job)
        return self.hostcore("run", "job.json")

    def document(self, path: str) -> Any:
        """A JSON document of the runs folder."""
        return json.loads((self.folder / "runs" / path).read_text())

    def events(self, run_id: str) -> list[dict[str, Any]]:
        lines = (self.folder / "runs" / run_id / "logs/events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def environment_in() -> Any:
    """Makes an environment in an empty folder."""
    return Environment.make


@pytest.fixture(scope="session")
def environment_at() -> Any:
    """The environment in a folder, such as a copy of one."""
    return Environment.at


@pytest.fixture
def environment(site: Any, tmp_path: Path) -> Environment:
    """This environment, and what a test installs into its ``site``."""
    return Environment(tmp_path, variables=site.environment)


#: Steps that cost nothing, and a loss that halves.
TRAINER = """
    from hostcore_hookspecs import StepResult

    class Halving:
        def setup(self): pass
        def configure(self): return {"loss": 8.0}
        def prepare_batch(self, raw_batch): return raw_batch
        def train_step(self, prepared_batch, state):
            if prepared_batch == "bad":
                raise ValueError("a bad batch")
            state["loss"] /= 2
            return StepResult(metrics={"loss": state["loss"]})
        def state_dict(self, state): return state
        def load_state_dict(self, state, payload): state.update(payload)
"""


@pytest.fixture
def halving(site: Any) -> dict[str, Any]:
    """The trainer ``halving`` of the distribution ``halvers``, installed; and a job of four steps for it."""
    entry_points = {"hostcore.trainers": {"halving": "halvers:Halving"}}
    site.install("halvers", version="1.2", modules={"halvers.py": TRAINER}, entry_points=entry_points)
    return {"trainer": "halving", "run_id": "try", "mock_batches": [1, 2], "epochs": 2, "terminal": False}
