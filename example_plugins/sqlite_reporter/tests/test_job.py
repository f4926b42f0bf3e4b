"""The reporter in a real run."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

import hostcore

TRAINER = """
from hostcore_hookspecs import StepResult

class Halving:
    def configure(self): return {"loss": 8.0}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, state):
        state["loss"] /= 2
        return StepResult(metrics={"loss": state["loss"]})
"""


def test_a_job_that_names_the_reporter_fills_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "halving_trainer.py").write_text(TRAINER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "halving_trainer", raising=False)
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "runs"))
    result = hostcore.run(
        {
            "run_id": "a",
            "trainer": "halving_trainer:Halving",
            "max_steps": 3,
            "metric_every": 1,
            "reporters": [{"use": "sqlite", "path": str(tmp_path / "runs.db"), "required": True}],
        }
    )
    assert result.status == "succeeded", result.error
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database:
        metrics = database.execute("SELECT name, step, value FROM metrics ORDER BY step").fetchall()
        assert database.execute("SELECT * FROM runs").fetchall() == [("a", "halving_trainer:Halving", "succeeded", 3)]
    assert metrics == [("train/loss", 1, 4.0), ("train/loss", 2, 2.0), ("train/loss", 3, 1.0)]
