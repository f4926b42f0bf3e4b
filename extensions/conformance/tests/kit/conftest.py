"""The reference plugins, the broken ones and those of a stranger, really installed, for the tests of the kit."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hostcore_conformance.check import EVERY_KIND, with_required
from hostcore_conformance.process.fork_server import Imported, preload
from hostcore_conformance.result import CheckResult
from hostcore_conformance.session import Session

HERE = Path(__file__).resolve().parent
REFERENCE = HERE / "reference"
_PATTERNS = ("broken/*/pyproject.toml", "stranger/*/pyproject.toml")
DISTRIBUTIONS = (REFERENCE, *sorted(file.parent for pattern in _PATTERNS for file in HERE.glob(pattern)))


@pytest.fixture(scope="session", autouse=True)
def _imported_and_set_aside() -> None:
    """Import what runs do, once, and have no collection of garbage look at all that again, as `hostcore check` does."""
    for imported in Imported:
        preload(imported)
    gc.freeze()


@pytest.fixture(scope="session")
def ask_alone(installed_plugins: Path) -> Callable[[Session, str], list[CheckResult]]:
    """Ask a check, and of what it requires only what costs no run: that the plugin can be constructed.

    A broken plugin has one mistake; the runs of checks that are about others are made on the reference plugin.
    """

    def ask(session: Session, asked: str) -> list[CheckResult]:
        wanted = session.select(asked)
        others = (one for one in with_required(wanted, session.checks) if one not in wanted and one.kind != EVERY_KIND)
        session.adopt(CheckResult(id=one.id, status="passed", level=one.level) for one in others)
        return list(session.run(asked))

    return ask


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
