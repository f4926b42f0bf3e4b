"""The tutorial, typed in as it stands: its files, its commands, its errors."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).resolve().parents[3]
TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```\{code-block\} \w+\n:caption: (\S+)\n\n(.*?)```", TUTORIAL, re.DOTALL))


def shown_error(name: str) -> str:
    """The message of the ``error:`` line of a console block."""
    block = re.search(rf":name: {name}\n\n(.*?)```", TUTORIAL, re.DOTALL)
    assert block, name
    (message,) = re.findall(r"^error: (.*)$", block[1], re.MULTILINE)
    return str(message)


@attrs.frozen
class Reader:
    """Somebody who follows the tutorial in a folder of their own."""

    folder: Path
    site: Path

    def install(self) -> None:
        """``pip install``, into a folder instead of an environment; what it needs is here already."""
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
        subprocess.run([*pip, "--upgrade", "--target", str(self.site), str(self.folder)], check=True)

    def hostcore(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", "from hostcore.cli import main; main()", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(self.site)}
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def mistype(self, right: str, wrong: str) -> None:
        """Change the trainer, and install it again."""
        file = self.folder / "circle_trainer.py"
        source = file.read_text()
        assert right in source
        file.write_text(source.replace(right, wrong))
        self.install()


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    folder = tmp_path / "circle-trainer"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_text(content)
    reader = Reader(folder, tmp_path / "site")
    reader.install()
    return reader


def test_the_tutorial_has_a_package_a_trainer_and_a_job() -> None:
    assert set(FILES) == {"pyproject.toml", "circle_trainer.py", "job.json"}


def test_the_plugin_of_the_tutorial_is_listed(reader: Reader) -> None:
    def rows(text: str) -> list[list[str]]:
        return [line.split() for line in text.splitlines() if "circle_trainer:CircleTrainer" in line]

    (listed,) = rows(reader.hostcore("plugins").stdout)
    assert listed in rows(TUTORIAL)


def test_the_job_of_the_tutorial_finds_the_radius(reader: Reader) -> None:
    answer = reader.hostcore("run", "job.json")
    assert answer.returncode == 0, answer.stderr
    result = json.loads((reader.folder / "runs/circle-1/result.json").read_text())
    assert result["status"] == "succeeded"
    assert result["step"] == 780
    assert result["metrics"]["radius"] == pytest.approx(1, abs=0.02)
    assert (reader.folder / "runs/circle-1/plots/loss.png").is_file()


def test_the_wrong_value_of_the_tutorial_is_refused_as_it_says(reader: Reader) -> None:
    answer = reader.hostcore("run", "job.json", "--set", "run_id=oops", "--set", 'hyperparams.learning_rate="0.1"')
    assert answer.returncode == 2
    assert shown_error("break-value") in answer.stderr
    assert not (reader.folder / "runs/oops").exists()


def test_the_wrong_name_of_the_tutorial_is_refused_as_it_says(reader: Reader) -> None:
    reader.mistype("def train_step", "def train_stpe")
    answer = reader.hostcore("run", "job.json", "--set", "run_id=oops")
    assert answer.returncode == 2
    assert shown_error("break-name") in answer.stderr
    assert not (reader.folder / "runs/oops").exists()


def test_the_exception_of_the_tutorial_is_shown_with_its_own_traceback(reader: Reader) -> None:
    reader.mistype("loss.backward()", "loss.backwards()")
    answer = reader.hostcore("run", "job.json", "--set", "run_id=oops")
    assert answer.returncode == 1
    assert shown_error("break-step") in answer.stderr
    assert re.search(r'File ".*circle_trainer.py", line 39, in train_step', answer.stderr)
    assert "line 39, in train_step" in TUTORIAL
