"""What somebody with a job has at hand: a folder, trainers good and bad, and the command line."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from fork_server import ran

ERROR_KEYS = {"code", "message", "pointer", "file", "hint"}


@attrs.frozen
class Answer:
    """What one command said."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The errors of a command with ``--json`` that refused its job: the documented document, and nothing else."""
        assert self.code == 2, self
        assert "Traceback" not in self.out + self.err, self
        document = json.loads(self.out)
        assert set(document) == {"errors"}
        for error in document["errors"]:
            assert set(error) == ERROR_KEYS
            assert error["code"]
            assert error["message"]
        return list(document["errors"])

    @property
    def error(self) -> dict[str, Any]:
        """The only error of it."""
        (error,) = self.errors
        return dict(error)

    @property
    def told(self) -> str:
        """What people read about the only error of a refused job."""
        assert self.code == 2, self
        assert self.out == "", self
        assert "Traceback" not in self.err, self
        assert self.err.startswith("error: "), self
        assert self.err.count("error: ") == 1, self
        return self.err


@attrs.frozen
class Workplace:
    """A folder that somebody starts jobs in. What is installed beside hostcore lies in its ``site``."""

    folder: Path

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def write(self, job: object, name: str = "job.json") -> None:
        """Write a file: text and bytes as they are, anything else as JSON."""
        content = job if isinstance(job, str | bytes) else json.dumps(job)
        (self.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def hostcore(self, *arguments: str, through: Sequence[str] = (), environment: Mapping[str, str] = {}) -> Answer:
        """Start the command as a shell would.

        :param through: A command that starts it in turn.
        """
        site = os.pathsep.join(filter(None, [str(self.folder / "site"), os.environ.get("PYTHONPATH")]))
        here = {
            "cwd": self.folder,
            "env": {**os.environ, "PYTHONPATH": site, "HOSTCORE_RUNS_DIR": "", **environment},
            "text": True,
        }
        if not through:
            done = ran(arguments, **here)
        else:
            command = [*through, sys.executable, "-P", "-m", "hostcore", *arguments]
            done = subprocess.run(command, **here, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return Answer(done.returncode, done.stdout, done.stderr)

    def tree(self) -> dict[str, str]:
        """Everything that runs left: relative path and what it holds."""
        return {
            path.relative_to(self.runs).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            if path.is_file()
            else "folder"
            for path in sorted(self.runs.rglob("*"))
        }


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    """An empty folder."""
    return Workplace(tmp_path)


@pytest.fixture(scope="session")
def workplace_at() -> Any:
    """Makes a workplace of an empty folder."""
    return Workplace
