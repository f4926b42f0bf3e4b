"""A cluster that the tests of this folder share, and a user's folder with jobs for it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from fork_server import ran
from waiting import wait_until

HERE = Path(__file__).parent


def _cluster() -> Any:
    spec = importlib.util.spec_from_file_location("ray_cluster_of_the_engines", HERE / "cluster.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@attrs.frozen
class Folder:
    """A user's folder, and the cluster that its jobs go to."""

    path: Path
    ray: Any

    def submit(self, run_id: str, *, token: str | None = None, **keys: Any) -> subprocess.CompletedProcess[str]:
        """Submit a job with ``hostcore run --detach``."""
        launcher = {"use": "ray", "address": self.ray.address, "token": {"$secret": "env:CLUSTER_TOKEN"}}
        job = {
            "trainer": "curve_trainer:Trainer",
            "run_id": run_id,
            "max_steps": 20,
            "terminal": False,
            "device": "cpu",
            "launcher": {**launcher, **keys.pop("launcher", {})},
            **keys,
        }
        (self.path / f"{run_id}.json").write_text(json.dumps(job))
        return self.hostcore("run", f"{run_id}.json", "--detach", token=token)

    def hostcore(self, *arguments: str, token: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of hostcore's."""
        around = {name: value for name, value in os.environ.items() if not name.startswith(("HOSTCORE_", "RAY_"))}
        return ran(arguments, cwd=self.path, env={**around, "CLUSTER_TOKEN": token or self.ray.token}, text=True)

    def run(self, run_id: str) -> Path:
        """A run's directory."""
        return self.path / "runs" / run_id

    def ended(self, run_id: str) -> dict[str, Any]:
        """The result of a run, once there is one."""
        file = self.run(run_id) / "result.json"
        wait_until(file.exists, f"the end of {run_id}", found=lambda: self.log(run_id))
        result: dict[str, Any] = json.loads(file.read_text())
        return result

    def log(self, run_id: str) -> str:
        """What all nodes have printed: rank 0 may be on any of them."""
        logs = sorted((self.run(run_id) / "logs").glob("ray.*.log"))
        return "".join(log.read_text() for log in logs) if logs else "(no log)"

    def launch(self, run_id: str) -> dict[str, Any]:
        """What was written down of a launch."""
        found: dict[str, Any] = json.loads((self.run(run_id) / "config" / "launch.json").read_text())
        return found


@pytest.fixture(scope="session")
def wait() -> Callable[..., Any]:
    """See ``wait_until``."""
    return wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """A folder whose jobs go to a cluster of two nodes; each test has run ids of its own."""
    module = _cluster()
    if module.MISSING:
        pytest.skip(module.MISSING)
    path = tmp_path_factory.mktemp("ray jobs")
    shutil.copy(HERE.parent / "curve_trainer.py", path)
    with module.cluster(gpus=2) as ray:
        ray.join()
        yield Folder(path, ray)
