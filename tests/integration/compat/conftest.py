"""The examples of the host that hostcore is compatible with, and the two ways to start them."""

import difflib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fork_server import run

DATA = Path(__file__).parent / "data"
THEIR_IMPORT = "from gen_worker.trainer import StepContext, StepResult"
OUR_IMPORT = "from hostcore_hookspecs import StepContext, StepResult"
ROWS = 640


@attrs.frozen
class Mount:
    """A folder as a container would have it mounted: the trainer, its data and its job, with other names and paths."""

    folder: Path

    def changed(self, **keys: Any) -> None:
        """Change keys of the job."""
        path = self.folder / "trainer_job.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))

    def start(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """``python -m …`` in an environment without variables of earlier tests."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINER_", "WORKER_"))}
        return run(
            [sys.executable, "-P", "-m", *arguments],
            cwd=self.folder,
            env={**inherited, "HOSTCORE_RUNS_DIR": "", **environment},
            text=True,
        )

    def entrypoint(self, **environment: str) -> "subprocess.CompletedProcess[str]":
        """As the other host's containers start: nothing but environment variables."""
        job = str(self.folder / "trainer_job.json")
        variables = {"WORKER_MODE": "trainer", "TRAINER_JOB_SPEC_PATH": job, **environment}
        return self.start("hostcore.entrypoint", **variables)

    def document(self, path: str) -> Any:
        return json.loads((self.folder / path).read_text())

    def lines(self, path: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / path).read_text().splitlines()]


def only_changed(before: str, after: str) -> list[str]:
    """The lines of a text that replaced others."""
    changes = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    return [line[2:] for line in changes if line[0] == "+"]


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    """The examples, with one line of the skeleton and two values of the job changed."""
    skeleton = (DATA / "skeleton.py.txt").read_text()
    mine = skeleton.replace(THEIR_IMPORT, OUR_IMPORT)
    assert only_changed(skeleton, mine) == [OUR_IMPORT]
    (tmp_path / "skeleton.py").write_text(mine)

    data = tmp_path / "data/train.parquet"
    data.parent.mkdir()
    columns = {name: [f"{name} {row}" for row in range(ROWS)] for name in ("image_ref", "caption", "unused")}
    pq.write_table(pa.table(columns), data)

    job = (DATA / "trainer_job.json").read_text()
    ours = job.replace("my_pkg.train:MyTrainer", "skeleton:MyTrainer").replace("/data/train.parquet", str(data))
    assert only_changed(job, ours) == ['  "trainer": "skeleton:MyTrainer",', f'    "parquet_paths": ["{data}"],']
    (tmp_path / "trainer_job.json").write_text(ours)
    return Mount(tmp_path)
