"""The host with its built-in plugins alone: none of the project's other distributions is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import EXTENSION_NAMES

import hostcore
import hostcore_builtin_plugins
import hostcore_hookspecs
import hostcore_toolkit
from hostcore_builtin_plugins.extras import install_command

Ran = subprocess.CompletedProcess[str]

JOB = {
    "trainer": "alone:Trainer",
    "dataset": {"source": "mock", "num_rows": 8, "batch_size": 4},
    "max_steps": 2,
    "run_id": "alone",
}
TRAINER = """
from hostcore_hookspecs import StepResult

class Trainer:
    def setup(self, ctx): pass
    def configure(self, ctx): return {}
    def prepare_batch(self, raw_batch, state, ctx): return raw_batch
    def train_step(self, prepared_batch, state, ctx): return StepResult(metrics={"loss": 1.0})
    def state_dict(self, state): return {}
    def load_state_dict(self, state, payload): pass
"""


@pytest.fixture(scope="module")
def without_extensions(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A path for modules: what is installed here but for those distributions, and a library that one of them needs."""
    folder = tmp_path_factory.mktemp("site-packages")
    hidden = ("matplotlib", *(f"hostcore_{name}" for name in EXTENSION_NAMES))
    installed = Path(sysconfig.get_path("purelib"))
    for entry in installed.iterdir():
        if not entry.name.startswith(hidden) and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    for package in (hostcore, hostcore_builtin_plugins, hostcore_hookspecs, hostcore_toolkit):
        assert package.__file__ is not None
        source = Path(package.__file__).parent
        if not (folder / source.name).exists():  # it is installed in editable mode
            (folder / source.name).symlink_to(source)
    return str(folder)


@pytest.fixture
def alone(without_extensions: str, tmp_path: Path) -> Callable[..., Ran]:
    """``alone("run", "job.json")``: the command where nothing else is installed."""
    environment = {**os.environ, "PYTHONPATH": without_extensions, "PYTHONNOUSERSITE": "1"}

    def call(*arguments: str) -> Ran:
        # -S: the site-packages of this interpreter, which has them all, is not on the path.
        program = "import sys; from hostcore.cli import main; sys.exit(main())"
        command = [sys.executable, "-S", "-c", program, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600
        )

    return call


def test_lists_its_own_commands(alone: Callable[..., Ran]) -> None:
    said = alone("--help")
    assert said.returncode == 0, said.stderr
    names = [line.split()[0] for line in said.stdout.partition("Commands:\n")[2].splitlines() if line[2] != " "]
    assert {"run", "validate", "status", "plugins"} <= set(names)
    assert not {"check", "new", "serve"} & set(names)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve"], install_command("service")),
        (["check", "x"], install_command("conformance")),
        (["report", "x"], install_command("inspect")),
        (["compare", "x", "y"], install_command("inspect")),
        (["doctor"], install_command("inspect")),
        (["list", "--server", "http://localhost:1"], install_command("service")),
    ],
    ids=["serve", "check", "report", "compare", "doctor", "server"],
)
def test_says_what_installs_the_rest(alone: Callable[..., Ran], arguments: list[str], says: str) -> None:
    said = alone(*arguments)
    assert said.returncode == 2
    assert says in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    ("key", "extra"),
    [
        ({"launcher": "slurm"}, "slurm"),
        ({"reporters": ["mlflow"]}, "mlflow"),
        ({"reporters": ["hostcore-builtin-plugins/webhook"]}, "webhook"),
        ({"uploaders": ["mlflow-artifacts"]}, "mlflow"),
    ],
    ids=["launcher", "reporter", "former distribution", "uploader"],
)
def test_says_what_installs_a_plugin_that_a_job_names(
    alone: Callable[..., Ran], tmp_path: Path, key: dict[str, object], extra: str
) -> None:
    (tmp_path / "alone.py").write_text(TRAINER)
    (tmp_path / "job.json").write_text(json.dumps({**JOB, **key}))
    said = alone("validate", "job.json")
    assert said.returncode == 2
    assert f"`{install_command(extra)}` brings it" in said.stderr


def test_runs_a_job(alone: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(TRAINER)
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    said = alone("run", "job.json", "--json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["status"] == "succeeded"
    assert "plot.failed" not in (tmp_path / "runs/alone/logs/events.jsonl").read_text()
    assert not (tmp_path / "runs/alone/plots").exists()  # hostcore-inspect draws
