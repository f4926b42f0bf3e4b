"""A package index of this machine's own, and commands that build environments from it.

Its wheels link to what is installed here (``linked_wheels``), so that an environment is made in seconds and without a
network; those of trainers are made by the tests. uv, virtual environments and workers are real.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import attrs
import orjson
import pytest
from command_line import Said
from fork_server import ran
from package_index import Index, linked_index

_OLD: Final = "20.0.0"


@pytest.fixture(scope="session")
def _linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked_index(tmp_path_factory.mktemp("linked"))


@attrs.frozen
class Workplace:
    """A folder with job files, and an index to build their environments from."""

    path: Path
    index: Index
    environment: dict[str, str]

    def job(self, name: str = "job.json", **keys: Any) -> Path:
        """Write a job file."""
        file = self.path / name
        file.write_text(json.dumps({"max_steps": 4, "metric_every": 1, "terminal": False, **keys}))
        return file

    def hostcore(self, *arguments: str | Path, **environment: str) -> Said:
        """Call the installed command to its end."""
        done = ran(arguments, cwd=self.path, env={**self.environment, **environment}, text=True, timeout=900)
        return Said(code=done.returncode, out=done.stdout, err=done.stderr)

    def run_directory(self, run_id: str) -> Path:
        return self.path / "runs" / run_id

    def document(self, run_id: str, name: str) -> Any:
        """A JSON document of a run."""
        return orjson.loads((self.run_directory(run_id) / name).read_bytes())

    def output(self, run_id: str, attempt: int = 1) -> str:
        """What the worker has written."""
        return (self.run_directory(run_id) / "logs" / f"rank-0.attempt-{attempt}.log").read_text()


@pytest.fixture(scope="session")
def _old_pyarrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real wheel, from the package registry that pip here is configured for."""
    folder = tmp_path_factory.mktemp("pyarrow")
    asked = ["download", "--quiet", "--no-deps", "--only-binary=:all:", f"pyarrow=={_OLD}", "--dest", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", *asked], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture
def pyarrows(workplace: "Workplace", _old_pyarrow: Path) -> dict[str, str]:
    """Two versions of pyarrow that the index has, ``old`` and ``new``: that of here."""
    page = workplace.index.path / "pyarrow"
    wheels = [*page.resolve().glob("*.whl"), _old_pyarrow]
    page.unlink()
    page.mkdir()
    for wheel in wheels:
        (page / wheel.name).symlink_to(wheel)
    links = "".join(f'<a href="{one.name}">{one.name}</a>' for one in wheels)
    (page / "index.html").write_text(f"<!DOCTYPE html>{links}")
    return {"old": _OLD, "new": version("pyarrow")}


@pytest.fixture(scope="session")
def make_workplace(_linked: Path) -> Callable[[Path], Workplace]:
    """Makes workplaces: each has an index with links to what is installed here, and environments of its own."""

    def make(folder: Path) -> Workplace:
        place, index = folder / "place", Index.make(folder / "index", _linked)
        place.mkdir()
        taken = ("HOSTCORE_RUNS_DIR", "UV_FIND_LINKS", "UV_CONSTRAINT", "PYTHONPATH")
        around = {name: value for name, value in os.environ.items() if name not in taken}
        return Workplace(place, index, {**around, **index.environment})

    return make


@pytest.fixture
def workplace(make_workplace: Callable[[Path], Workplace], tmp_path: Path) -> Workplace:
    """A new workplace."""
    return make_workplace(tmp_path)
