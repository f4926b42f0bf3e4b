"""The uploader in a real run."""

import sys
from pathlib import Path

import pytest

import hostcore

TRAINER = """
from pathlib import Path
from hostcore_hookspecs import StepResult

class Halving:
    def configure(self): return {"loss": 8.0}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, state):
        state["loss"] /= 2
        return StepResult(metrics={"loss": state["loss"]})
    def save_checkpoint(self, state, step, output_dir): Path(output_dir, "loss.txt").write_text(str(state["loss"]))
"""


def test_a_job_that_names_the_uploader_fills_the_vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "saving_trainer.py").write_text(TRAINER)
    (tmp_path / "vault").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "saving_trainer", raising=False)
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "runs"))
    result = hostcore.run(
        {
            "run_id": "a",
            "trainer": "saving_trainer:Halving",
            "max_steps": 4,
            "checkpoint_every": 2,
            "terminal": False,
            "uploaders": [{"use": "vault", "path": str(tmp_path / "vault"), "required": True}],
        }
    )
    assert result.status == "succeeded", result.error
    there = tmp_path / "vault/runs/a/framework=saving_trainer-Halving"
    local = tmp_path / "runs/a"
    for name in ("checkpoints", "config/run.json", "result.json"):
        found = local / name
        files = [path for path in found.rglob("*") if path.is_file()] if found.is_dir() else [found]
        assert files
        for path in files:
            assert (there / path.relative_to(local)).read_bytes() == path.read_bytes()
