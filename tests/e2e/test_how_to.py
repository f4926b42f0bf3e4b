"""The plugins of the how-to guides, installed as they stand and used by a job."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import attrs
import pytest
from checkout import ROOT
from fork_server import ran
from tutorial_reader import PIP, files_of

GUIDES = ROOT / "docs"

TRAINER = """
from hostcore_hookspecs import StepResult

class Constant:
    def setup(self): pass
    def configure(self): return {}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, prepared_batch): return StepResult(metrics={"loss": sum(prepared_batch["a"].to_pylist())})
    def state_dict(self, state): return state
    def load_state_dict(self, state, payload): state.update(payload)
"""


def packages(guide: str) -> list[dict[str, str]]:
    """The packages of a guide, as it shows them: a module, and the pyproject.toml that comes next."""
    files = files_of((GUIDES / f"{guide}.md").read_text(encoding="utf-8"))
    assert [name == "pyproject.toml" for name, _ in files] == [False, True] * (len(files) // 2)
    return [dict(files[at : at + 2]) for at in range(0, len(files), 2)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of the guides, built and installed by pip; what they need is here already."""
    sources = []
    for guide in ("how-to/data-sources", "authors/callbacks"):
        for package in packages(guide):
            source = tmp_path_factory.mktemp("package")
            for name, content in package.items():
                (source / name).write_text(content)
            sources.append(str(source))
    site = tmp_path_factory.mktemp("site")
    subprocess.run([*PIP, "--target", str(site), *sources], check=True)
    return site


@attrs.frozen
class Lab:
    """A folder with a trainer and a CSV file, and an environment with the plugins of the guides."""

    folder: Path
    environment: dict[str, str]

    def run(self, **job: Any) -> "subprocess.CompletedProcess[str]":
        base = {"run_id": "guide", "trainer": "constant_trainer:Constant", "terminal": False, "metric_every": 1}
        dataset = {"source": "csv-file", "path": "rows.csv", "columns": ["a"], "batch_size": 2}
        (self.folder / "job.json").write_text(json.dumps({**base, "dataset": dataset, **job}))
        return ran(["run", "job.json"], cwd=self.folder, env=self.environment, text=True)

    @property
    def result(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "runs/guide/result.json").read_text()))


@pytest.fixture
def lab(installed: Path, tmp_path: Path) -> Lab:
    (tmp_path / "constant_trainer.py").write_text(TRAINER)
    (tmp_path / "rows.csv").write_text("a,b\n" + "1,2\n" * 40)
    return Lab(tmp_path, {**os.environ, "PYTHONPATH": str(installed)})


def test_the_data_source_of_the_guide_reads_its_csv_file(lab: Lab) -> None:
    answer = lab.run()
    assert answer.returncode == 0, answer.stderr
    assert lab.result["step"] == 20
    assert lab.result["metrics"]["train/loss"] == 2


def test_the_data_source_of_the_guide_refuses_a_missing_file(lab: Lab) -> None:
    (lab.folder / "rows.csv").unlink()
    answer = lab.run()
    assert answer.returncode == 2
    assert "there is no such file" in answer.stderr
    assert "/dataset/path" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_callback_of_the_guide_stops_a_run_that_does_not_improve(lab: Lab) -> None:
    answer = lab.run(callbacks=[{"use": "stop-when-flat", "patience_steps": 5}])
    assert answer.returncode == 0, answer.stderr
    assert lab.result["status"] == "succeeded"
    assert lab.result["step"] < 20
    assert lab.result["reason"].startswith("train/loss has been above")


def test_the_wrapper_of_the_guide_times_every_batch(lab: Lab) -> None:
    answer = lab.run(callbacks=["time-batches"])
    assert answer.returncode == 0, answer.stderr
    printed = (lab.folder / "runs/guide/logs/rank-0.attempt-1.log").read_text()
    assert len(re.findall(r"^prepare_batch: [\d.]+ s$", printed, re.MULTILINE)) == 20
