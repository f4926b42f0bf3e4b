"""Runs that are looked at again: made once, and only read."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from fork_server import ran
from pyarrow import parquet

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@attrs.frozen
class Bench:
    """A folder with data, a trainer and runs."""

    folder: Path

    def data(self, name: str, rows: int, *, poisoned: int | None = None) -> str:
        """Write a file of rows, of which a poisoned one has a target that makes a spike."""
        rng = np.random.default_rng(1)
        a, b = rng.normal(size=(2, rows)).astype("float32")
        y = (a - b / 2).astype("float32")
        if poisoned is not None:
            y[poisoned] = 1e4
        table = pa.table({"a": a, "b": b, "y": y, "label": np.arange(rows) % 10})
        parquet.write_table(table, self.folder / name, row_group_size=max(16, rows // 40))
        return name

    def run(self, run_id: str, data: str = "train.parquet", *, code: int = 0, **keys: Any) -> Path:
        """Train to the end; the run directory."""
        columns = ["a", "b", "y"]
        job = {
            "trainer": "debug_trainer:Trainer",
            "dataset": {"parquet_paths": [data], "batch_size": 16, "shuffle": True, "columns": columns},
            "max_steps": 40,
            "checkpoint_every": 10,
            "keep_checkpoints": 10,
            "metric_every": 1,
            "terminal": False,
            **keys,
            "run_id": run_id,
        }
        job = {key: value for key, value in job.items() if value is not None}
        (self.folder / f"{run_id}.json").write_text(json.dumps(job))
        assert self(["run", f"{run_id}.json"], fails=code == 1).returncode == code
        return self.folder / "runs" / run_id

    def __call__(self, arguments: list[str], *, fails: bool = False) -> Any:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
        ended = ran(arguments, cwd=self.folder, env=environment, text=True)
        assert fails or "Traceback" not in ended.stderr, ended.stderr
        return ended

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Return the document that a command prints."""
        ended = self([*arguments, "--json"])
        assert ended.returncode == code, ended.stdout + ended.stderr
        return json.loads(ended.stdout)


@pytest.fixture(scope="package")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    made = Bench(tmp_path_factory.mktemp("debug"))
    shutil.copy(HERE / "debug_trainer.py", made.folder)
    made.data("train.parquet", 320)
    return made


@pytest.fixture(scope="package")
def plain(bench: Bench) -> Path:
    return bench.run("plain")


@pytest.fixture
def content() -> Callable[[Path], dict[str, tuple[int, bytes]]]:
    """The files below a folder, with the times of their change."""

    def read(folder: Path) -> dict[str, tuple[int, bytes]]:
        files = (one for one in folder.rglob("*") if one.is_file())
        return {str(one): (one.stat().st_mtime_ns, one.read_bytes()) for one in files}

    return read
