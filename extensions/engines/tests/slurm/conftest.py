"""A Slurm of two nodes, and a user's folder with runs in it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import orjson
import pytest
from checkout import TESTS
from fork_server import ran
from waiting import wait_until

from hostcore_engines.slurm.launcher import SlurmLauncher
from hostcore_hookspecs import LaunchHandle, LaunchStatus

HERE = Path(__file__).resolve().parent
TRAINERS = (
    TESTS / "integration/runs/small_trainer.py",
    TESTS / "e2e/ranks/pair_trainer.py",
)
OVER = ("succeeded", "failed", "cancelled", "preempted", "lost")


def _cluster_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("slurm_cluster_of_the_tests", HERE / "cluster.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@attrs.frozen(kw_only=True)
class Submitted:
    """A run that was handed to Slurm."""

    path: Path
    handle: LaunchHandle

    @property
    def job(self) -> str:
        return self.handle.id

    @property
    def result(self) -> dict[str, Any]:
        return orjson.loads((self.path / "result.json").read_bytes())

    def events(self, name: str) -> list[dict[str, Any]]:
        file = self.path / "logs" / "events.jsonl"
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        lines = [line for line in lines if line.endswith(b"\n")]  # the last may be being written
        return [event for line in lines if (event := orjson.loads(line))["event"] == name]

    def poll(self) -> LaunchStatus:
        return SlurmLauncher().poll(self.handle)

    def log(self) -> str:
        return SlurmLauncher().read_logs(self.handle, "").text

    def until(self, status: str) -> LaunchStatus:
        """Wait until the launcher says so."""

        def said() -> LaunchStatus | None:
            found = self.poll()
            assert found.status == status or found.status not in OVER, f"{found}\n{self.log()}"
            return found if found.status == status else None

        return wait_until(said, f"{status}; {self.poll()}")


@attrs.frozen(kw_only=True)
class Folder:
    """A user's folder: trainers in files, and ``runs``."""

    path: Path
    environment: Mapping[str, str]

    def submit(self, run_id: str, *, launcher: Mapping[str, Any] | None = None, **keys: Any) -> Submitted:
        """Submit a run with the command."""
        job = {
            "run_id": run_id,
            "trainer": "small_trainer:Trainer",
            "device": "cpu",
            "terminal": False,
            "max_steps": 10,
            "launcher": {"use": "slurm", **(launcher or {})},
            **keys,
        }
        file = self.path / f"{run_id}.json"
        file.write_text(json.dumps(job))
        done = ran(["run", file, "--detach", "--json"], cwd=self.path, env=self.environment, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        said = json.loads(done.stdout)
        return Submitted(path=Path(said["directory"]), handle=LaunchHandle(**said["launch"]))


@pytest.fixture(scope="module")
def slurm() -> Iterator[Any]:
    """The cluster; this process asks it, too."""
    module = _cluster_module()
    if module.MISSING:
        pytest.skip(module.MISSING)
    with module.cluster() as one, pytest.MonkeyPatch.context() as patch:
        for name in ("SLURM_CONF", "PATH"):
            patch.setenv(name, one.environment[name])
        yield one


@pytest.fixture(scope="module")
def folder(slurm: Any, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A folder that the tests share; each has run ids of its own."""
    path = tmp_path_factory.mktemp("user's folder")
    for trainer in TRAINERS:
        shutil.copy(trainer, path)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
    return Folder(path=path, environment={**clean, "HOSTCORE_RUNS_DIR": str(path / "runs")})


@pytest.fixture(scope="session")
def until() -> Callable[..., Any]:
    """See ``wait_until``."""
    return wait_until
