"""The reference plugins, the broken ones and those of a stranger, really installed, for the tests of the kit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
REFERENCE = HERE / "reference"
_PATTERNS = ("broken/*/pyproject.toml", "stranger/*/pyproject.toml")
DISTRIBUTIONS = (REFERENCE, *sorted(file.parent for pattern in _PATTERNS for file in HERE.glob(pattern)))


@pytest.fixture(scope="session")
def installed_plugins(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Path]:
    """A folder with all the distributions installed, on the path of this process and of those it starts."""
    shared = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        shared = shared.parent  # of all workers of pytest-xdist
    site = shared / "conformance-site"
    finished = shared / "conformance-site.finished"
    try:
        site.mkdir()
    except FileExistsError:
        while not finished.exists():  # another worker installs them, or has failed and left its error there
            time.sleep(0.1)
    else:
        finished.write_text(_install(site))
    assert finished.read_text() == ""
    environment = pytest.MonkeyPatch()
    environment.syspath_prepend(str(site))
    environment.setenv("PYTHONPATH", os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]))
    yield site
    environment.undo()


def _install(site: Path) -> str:
    """Install all distributions into a folder, as pip does.

    :return: What went wrong; empty if nothing.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--no-compile", "--target", str(site)]
    done = subprocess.run([*command, *map(str, DISTRIBUTIONS)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr or f"pip ended with {done.returncode}"
