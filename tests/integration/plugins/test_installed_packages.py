"""A plugin package from another folder: installed with pip, listed, used by name, removed."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "line-trainer"
version = "0.3.1"
dependencies = ["hostcore-hookspecs>=1,<2"]

[project.entry-points."hostcore.trainers"]
line = "line_trainer.train:LineTrainer"

[tool.hatch.build.targets.wheel]
packages = ["line_trainer"]
"""
TRAINER = '''
"""Fits a line by gradient descent."""

from typing import Annotated

import attrs
from annotated_types import Gt

from hostcore_hookspecs import StepContext, StepResult


class LineTrainer:
    """Fits y = slope * x, one batch at a time."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        """What can be chosen."""

        learning_rate: Annotated[float, Gt(0)] = 0.01
        start: float = 0.0

    def setup(self) -> None:
        """Nothing to prepare."""

    def configure(self, ctx: StepContext) -> dict[str, float]:
        return {"slope": ctx.hyperparams.start}

    def prepare_batch(self, raw_batch: list[list[float]]) -> list[list[float]]:
        return raw_batch

    def train_step(self, prepared_batch: list[list[float]], state: dict[str, float], ctx: StepContext) -> StepResult:
        loss = sum((state["slope"] * x - y) ** 2 for x, y in prepared_batch)
        gradient = sum(2 * x * (state["slope"] * x - y) for x, y in prepared_batch)
        state["slope"] -= ctx.hyperparams.learning_rate * gradient
        return StepResult(metrics={"loss": loss, "slope": state["slope"]})

    def state_dict(self, state: dict[str, float]) -> dict[str, float]:
        return dict(state)

    def load_state_dict(self, state: dict[str, float], payload: dict[str, float]) -> None:
        state.update(payload)
'''
JOB: dict[str, Any] = {
    "trainer": "line",
    "run_id": "fit",
    "hyperparams": {"learning_rate": 0.05, "start": 10},
    "mock_batches": [[[1.0, 3.0], [2.0, 6.0]], [[3.0, 9.0]]],
    "epochs": 20,
    "metric_every": 40,
    "terminal": False,
}


def write_package(folder: Path) -> Path:
    (folder / "line_trainer").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "line_trainer/__init__.py").write_text("")
    (folder / "line_trainer/train.py").write_text(TRAINER)
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, environment_in: Any) -> Any:
    """An environment with the package installed, whose folder is gone, as after a download."""
    environment = environment_in(tmp_path_factory.mktemp("installed"))
    package = write_package(tmp_path_factory.mktemp("elsewhere") / "line-trainer")
    environment.install(package)
    package.rename(package.with_name("moved-away"))
    environment.write(JOB)
    return environment


def test_an_installed_plugin_is_listed_with_its_distribution(environment: Any) -> None:
    line = {
        "kind": "trainer",
        "name": "line",
        "value": "line_trainer.train:LineTrainer",
        "distribution": "line-trainer",
        "version": "0.3.1",
        "conflict": False,
        "conformance": None,
    }
    assert line in environment.json("plugins")["plugins"]
    answer = environment.hostcore("plugins")
    assert (answer.returncode, answer.stderr) == (0, "")
    rows = [row.split() for row in answer.stdout.splitlines()]
    assert ["trainer", "line", "line-trainer", "0.3.1", "-", "line_trainer.train:LineTrainer"] in rows


def test_an_installed_plugin_shows_its_settings_and_hooks(environment: Any) -> None:
    answer = environment.hostcore("plugins", "show", "line")
    assert (answer.returncode, answer.stderr) == (0, "")
    for part in ("line-trainer 0.3.1", "Fits y = slope * x", "learning_rate", "0.01", "train_step"):
        assert part in answer.stdout
    (shown,) = environment.json("plugins", "show", "line-trainer/line")["plugins"]
    assert shown["errors"] == []
    assert shown["settings_schema"]["properties"]["learning_rate"]["exclusiveMinimum"] == 0
    assert set(shown["hooks"]) >= {"setup", "configure", "train_step"}


@pytest.fixture(scope="module")
def ran(environment: Any) -> Any:
    """The environment after the job ran."""
    answer = environment.hostcore("run", "job.json")
    assert answer.returncode == 0, answer.stderr
    return environment


def test_an_installed_plugin_runs_by_its_name_with_its_own_hyperparameters(ran: Any) -> None:
    result = ran.document("fit/result.json")
    assert (result["status"], result["step"]) == ("succeeded", 40)
    assert result["metrics"]["slope"] == pytest.approx(3)
    assert ran.document("fit/config/run.json")["job"]["hyperparams"] == {"learning_rate": 0.05, "start": 10}


def test_the_run_records_exactly_what_was_installed(ran: Any) -> None:
    (record,) = (ran.folder / "venv").glob("lib/python*/site-packages/line_trainer-0.3.1.dist-info/RECORD")
    recorded = {plugin["kind"]: plugin for plugin in ran.document("fit/config/run.json")["plugins"]}
    assert recorded["trainer"] == {
        "kind": "trainer",
        "name": "line",
        "value": "line_trainer.train:LineTrainer",
        "distribution": "line-trainer",
        "version": "0.3.1",
        "sha256": hashlib.sha256(record.read_bytes()).hexdigest(),
    }


def test_an_installed_plugin_that_is_uninstalled_is_gone_and_missed(
    ran: Any, environment_at: Any, tmp_path: Path
) -> None:
    shutil.copytree(ran.folder, tmp_path / "copy", symlinks=True)
    environment = environment_at(tmp_path / "copy")
    environment.pip("uninstall", "--yes", "line-trainer")

    assert "line" not in {plugin["name"] for plugin in environment.json("plugins")["plugins"]}
    shown = environment.hostcore("plugins", "show", "line")
    assert shown.returncode == 2
    assert "no plugin 'line' is installed" in shown.stderr
    answer = environment.hostcore("run", "job.json", "--set", "run_id=again")
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr
    assert "error: no trainer is called 'line'" in answer.stderr
    assert "at: /trainer" in answer.stderr
    for part in ("hostcore plugins", "install the package that registers it"):
        assert part in answer.stderr
    assert not (environment.folder / "runs/again").exists()
    # What it did when it was there can still be looked at.
    assert environment.json("status", "fit")["status"] == "succeeded"
