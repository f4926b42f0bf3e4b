"""What a run over shuffled Parquet imports before its first step: not pandas, though pyarrow would."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TRAINER = """
import sys
from pathlib import Path
from hostcore_hookspecs import StepResult
from hostcore_toolkit import to_tensors


class Trainer:
    def configure(self):
        return {}

    def prepare_batch(self, raw_batch, state, ctx):
        return to_tensors(raw_batch, ctx=ctx)

    def train_step(self, prepared_batch, state, ctx):
        Path("imported").write_text(" ".join(name for name in sys.modules if "." not in name))
        return StepResult(metrics={"loss": float(prepared_batch["x"].sum())})

    def validate_step(self, prepared_batch, state, ctx):
        return StepResult(metrics={"loss": 0.0})
"""


def test_a_run_does_not_import_pandas(tmp_path: Path) -> None:
    assert find_spec("pandas") is not None, "it is installed here, as in most places where models are trained"
    (tmp_path / "importing_trainer.py").write_text(TRAINER)
    pq.write_table(pa.table({"x": [*range(640)]}), tmp_path / "rows.parquet", row_group_size=40)
    dataset = {"parquet_paths": ["rows.parquet"], "batch_size": 8, "shuffle": True}
    job = {"trainer": "importing_trainer:Trainer", "dataset": dataset, "max_steps": 3, "device": "cpu"}
    job["validation"] = {"fraction": 0.1}
    (tmp_path / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-m", "hostcore", "run", "job.json", "--quiet"]
    ended = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    imported = (tmp_path / "imported").read_text().split()
    assert "pyarrow" in imported
    assert "pandas" not in imported
