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


@attrs.frozen
class Environment:
    """A virtual environment that sees this one's packages, and a folder to work in."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> "Environment":
        venv.create(folder / "venv", symlinks=True)
        (own,) = (folder / "venv").glob("lib/python*/site-packages")
        # Not a plain path: the editable installs of this environment have .pth files of their own.
        lines = [f"import site; site.addsitedir({sysconfig.get_path(name)!r})" for name in ("purelib", "platlib")]
        (own / "host.pth").write_text("\n".join(dict.fromkeys(lines)) + "\n")
        return cls(folder)

    @property
    def python(self) -> str:
        return str(self.folder / "venv/bin/python")

    def pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", self.python, *arguments, "--quiet"]
        subprocess.run([*command, "--disable-pip-version-check", "--no-input"], check=True)

    def install(self, package: Path) -> None:
        self.pip("install", "--no-index", "--no-deps", "--no-build-isolation", str(package))

    def hostcore(self, *arguments: str, environment: Mapping[str, str] = {}) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.python, "-P", "-m", "hostcore", *arguments],
            cwd=self.folder,
            env={**os.environ, "HOSTCORE_RUNS_DIR": "", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        """The document that a command prints with ``--json``."""
        answer = self.hostcore(*arguments, "--json")
        assert "Traceback" not in answer.stderr
        return json.loads(answer.stdout)

    def write(self, job: Mapping[str, Any]) -> None:
        (self.folder / "job.json").write_text(json.dumps(job))

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
