"""The tutorial, typed in as it stands: its files, its commands, its errors."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import ROOT
from fork_server import popen

TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```\{code-block\} \w+\n:caption: (\S+)\n\n(.*?)```", TUTORIAL, re.DOTALL))


def shown(name: str) -> str:
    """What a console block shows below its last prompt or ``^C``."""
    block = re.search(rf":name: {name}\n\n(.*?)```", TUTORIAL, re.DOTALL)
    assert block, name
    return re.split(r"^(?:\$ .*|\^C)\n", block[1], flags=re.MULTILINE)[-1]


def stable(printed: str) -> str:
    """What a command printed, without what differs from machine to machine: paths, times, speeds, last digits."""
    for pattern, replacement in (
        (r"/\S+/circle_trainer\.py", ".../circle_trainer.py"),
        (r"[\d,.]+ samples/s eta [\d:]+", "# samples/s eta #"),
        (r"\b[\d.]+ kB\b", "# kB"),
        (r"\b(?:\d+m)?[\d.]+s\b", "#s"),
    ):
        printed = re.sub(pattern, replacement, printed)
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.1g}", printed)


def without_progress(printed: str, *, except_steps: tuple[int, ...] = ()) -> str:
    """What was printed, less the lines that come every few seconds."""
    kept = "|".join(f"{step}/" for step in except_steps) or "$"
    return re.sub(rf"^\S+ step (?!{kept}).*\n", "", printed, flags=re.MULTILINE)


@attrs.frozen
class Reader:
    """Somebody who follows the tutorial in a folder of their own."""

    folder: Path
    site: Path

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return popen(
            [sys.executable, "-c", "from hostcore.cli import main; main()", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.site)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def hostcore(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*arguments)
        output, errors = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def mistype(self, right: str, wrong: str) -> None:
        """Change the trainer, and install it again."""
        source = FILES["circle_trainer.py"]
        assert right in source
        (self.folder / "circle_trainer.py").write_text(source.replace(right, wrong))
        install(self.folder, self.site)


def install(folder: Path, site: Path) -> None:
    """``pip install``, into a folder instead of an environment; what it needs is here already."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--upgrade", "--target", str(site), str(folder)], check=True)


def written(folder: Path) -> Path:
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_text(content)
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the tutorial, as pip has installed it."""
    place = tmp_path_factory.mktemp("tutorial")
    install(written(place / "circle-trainer"), place / "site")
    return place / "site"


@pytest.fixture
def reader(tmp_path: Path, installed: Path) -> Reader:
    shutil.copytree(installed, tmp_path / "site")
    return Reader(written(tmp_path / "circle-trainer"), tmp_path / "site")


def test_the_tutorial_has_a_package_a_trainer_and_a_job() -> None:
    assert set(FILES) == {"pyproject.toml", "circle_trainer.py", "job.json"}


def test_the_plugin_of_the_tutorial_is_listed(reader: Reader) -> None:
    def rows(text: str) -> list[list[str]]:
        return [line.split() for line in text.splitlines() if "circle_trainer:CircleTrainer" in line]

    (listed,) = rows(reader.hostcore("plugins").stdout)
    assert listed in rows(TUTORIAL)


def test_the_job_of_the_tutorial_finds_the_radius_and_prints_what_it_shows(reader: Reader) -> None:
    answer = reader.hostcore("run", "job.json")
    assert answer.returncode == 0, answer.stderr
    result = json.loads((reader.folder / "runs/circle-1/result.json").read_text())
    assert result["status"] == "succeeded"
    assert result["step"] == 780
    assert result["metrics"]["radius"] == pytest.approx(1, abs=0.02)
    assert (reader.folder / "runs/circle-1/plots/loss.png").is_file()
    kept = {"except_steps": (50,)}  # the line of the last step comes before or behind that of the checkpoint
    assert stable(without_progress(answer.stderr, **kept) + answer.stdout) == stable(
        without_progress(shown("run-it"), **kept)
    )
    last = "circle-1 step 780/780 loss 0.06"
    assert last in answer.stderr
    assert last in shown("run-it")


def test_ctrl_c_prints_what_the_tutorial_shows(reader: Reader) -> None:
    assert reader.hostcore("run", "job.json").returncode == 0
    process = reader.start("run", "job.json", "--set", "epochs=1000000")  # not over before Ctrl-C
    assert process.stderr is not None
    seen = [process.stderr.readline()]
    while seen[-1] and " loss " not in seen[-1]:
        seen.append(process.stderr.readline())
    process.send_signal(signal.SIGINT)
    output, rest = process.communicate()
    assert process.returncode == 130, rest
    assert seen[0] == "circle-1 resumed from checkpoints/step-000780\n"
    assert seen[0] in TUTORIAL

    def comparable(printed: str) -> list[str]:
        lines = re.sub(r"\d[\d,.]*", "#", without_progress(stable(printed))).splitlines()
        # Ctrl-C may come while the checkpoint of the cadence is being written: then there are two.
        return [line for line, before in zip(lines, ["", *lines], strict=False) if line != before]

    printed = rest[rest.index("circle-1 stopping") :] + output
    assert comparable(printed) == comparable(shown("press-ctrl-c"))


def test_the_tutorial_tells_where_the_trainer_prints_to(reader: Reader) -> None:
    reader.mistype("        logits =", '        print("here")\n        logits =')
    answer = reader.hostcore("run", "job.json", "--set", "max_steps=5", "--set", "run_id=smoke-1")
    assert answer.returncode == 0, answer.stderr
    assert "here" not in answer.stdout + answer.stderr
    log = "logs/rank-0.attempt-1.log"
    assert (reader.folder / "runs/smoke-1" / log).read_text() == "here\n" * 5
    assert f"`{log}`" in TUTORIAL


def test_the_trainer_of_the_tutorial_takes_columns_in_float64(reader: Reader) -> None:
    table = pa.table({"x": [0.1, 0.9] * 500, "y": [0.2, 0.8] * 500})
    assert table.schema.field("x").type == pa.float64()
    pq.write_table(table, reader.folder / "points.parquet")
    job = json.loads(FILES["job.json"])
    dataset = {"parquet_paths": ["points.parquet"], "batch_size": 100}
    (reader.folder / "own.json").write_text(json.dumps({**job, "run_id": "own", "dataset": dataset}))
    answer = reader.hostcore("run", "own.json")
    assert answer.returncode == 0, answer.stderr


def test_the_wrong_value_of_the_tutorial_is_refused_as_it_says(reader: Reader) -> None:
    answer = reader.hostcore("run", "job.json", "--set", "run_id=oops", "--set", 'hyperparams.learning_rate="0.1"')
    assert answer.returncode == 2
    assert answer.stdout + answer.stderr == shown("break-value")
    assert not (reader.folder / "runs/oops").exists()


def test_the_wrong_name_of_the_tutorial_is_refused_as_it_says(reader: Reader) -> None:
    reader.mistype("def train_step", "def train_stpe")
    answer = reader.hostcore("run", "job.json", "--set", "run_id=oops")
    assert answer.returncode == 2
    assert stable(answer.stdout + answer.stderr) == shown("break-name")
    assert not (reader.folder / "runs/oops").exists()


def test_the_exception_of_the_tutorial_is_shown_with_its_own_traceback(reader: Reader) -> None:
    reader.mistype("loss.backward()", "loss.backwards()")
    answer = reader.hostcore("run", "job.json", "--set", "run_id=oops")
    assert answer.returncode == 1
    assert stable(answer.stderr + answer.stdout) == stable(shown("break-step"))
    assert (reader.folder / "runs/oops/result.json").is_file()


def test_callbacks_find_the_optimizer_of_the_tutorial(reader: Reader) -> None:
    callbacks = json.dumps(["lr-monitor", {"use": "grad-clip", "max_norm": 1.0}])
    answer = reader.hostcore(
        "run", "job.json", "--set", f"callbacks={callbacks}", "--set", "max_steps=5", "--set", "run_id=lr", "--json"
    )
    assert answer.returncode == 0, answer.stderr
    assert "train/lr" in json.loads(answer.stdout)["metrics"]
