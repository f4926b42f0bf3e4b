"""The tutorial, typed in as it stands: its files, its commands, its errors."""

import json
import re
import shutil
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import ROOT
from tutorial_reader import Reader, files_of

TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
FILES = dict(files_of(TUTORIAL))


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


def mistype(reader: Reader, right: str, wrong: str) -> None:
    """Change the trainer, and install it again."""
    source = FILES["circle_trainer.py"]
    assert right in source
    (reader.folder / "circle_trainer.py").write_text(source.replace(right, wrong))
    reader.install()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the tutorial, as pip has installed it."""
    place = tmp_path_factory.mktemp("tutorial")
    reader = Reader(TUTORIAL, place / "circle-trainer", place / "site")
    reader.type_in()
    reader.install()
    return reader.site


@pytest.fixture
def reader(tmp_path: Path, installed: Path) -> Reader:
    shutil.copytree(installed, tmp_path / "site")
    reader = Reader(TUTORIAL, tmp_path / "circle-trainer", tmp_path / "site")
    reader.type_in()
    return reader


def test_the_tutorial_has_a_package_a_trainer_and_a_job() -> None:
    assert set(FILES) == {"pyproject.toml", "circle_trainer.py", "job.json"}


def test_the_plugin_of_the_tutorial_is_listed(reader: Reader) -> None:
    def rows(text: str) -> list[list[str]]:
        return [line.split() for line in text.splitlines() if "circle_trainer:CircleTrainer" in line]

    (listed,) = rows(reader.hostcore("plugins").out)
    assert listed in rows(TUTORIAL)


def test_the_job_of_the_tutorial_finds_the_radius_and_prints_what_it_shows(reader: Reader) -> None:
    answer = reader.hostcore("run", "job.json")
    assert answer.code == 0, answer.err
    result = json.loads((reader.folder / "runs/circle-1/result.json").read_text())
    assert result["status"] == "succeeded"
    assert result["step"] == 780
    assert result["metrics"]["radius"] == pytest.approx(1, abs=0.02)
    assert (reader.folder / "runs/circle-1/plots/loss.png").is_file()
    kept = {"except_steps": (50,)}  # the line of the last step comes before or behind that of the checkpoint
    assert stable(without_progress(answer.err, **kept) + answer.out) == stable(
        without_progress(reader.shown("run-it"), **kept)
    )
    last = "circle-1 step 780/780 loss 0.06"
    assert last in answer.err
    assert last in reader.shown("run-it")


def test_ctrl_c_prints_what_the_tutorial_shows(reader: Reader) -> None:
    assert reader.hostcore("run", "job.json").code == 0
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
    assert comparable(printed) == comparable(reader.shown("press-ctrl-c"))


def test_the_tutorial_tells_where_the_trainer_prints_to(reader: Reader) -> None:
    mistype(reader, "        logits =", '        print("here")\n        logits =')
    answer = reader.hostcore("run", "job.json", "--set", "max_steps=5", "--set", "run_id=smoke-1")
    assert answer.code == 0, answer.err
    assert "here" not in answer.out + answer.err
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
    assert answer.code == 0, answer.err


def test_the_wrong_value_of_the_tutorial_is_refused_as_it_says(reader: Reader) -> None:
    answer = reader.hostcore("run", "job.json", "--set", "run_id=oops", "--set", 'hyperparams.learning_rate="0.1"')
    assert answer.code == 2
    assert answer.out + answer.err == reader.shown("break-value")
    assert not (reader.folder / "runs/oops").exists()


def test_the_wrong_name_of_the_tutorial_is_refused_as_it_says(reader: Reader) -> None:
    mistype(reader, "def train_step", "def train_stpe")
    answer = reader.hostcore("run", "job.json", "--set", "run_id=oops")
    assert answer.code == 2
    assert stable(answer.out + answer.err) == reader.shown("break-name")
    assert not (reader.folder / "runs/oops").exists()


def test_the_exception_of_the_tutorial_is_shown_with_its_own_traceback(reader: Reader) -> None:
    mistype(reader, "loss.backward()", "loss.backwards()")
    answer = reader.hostcore("run", "job.json", "--set", "run_id=oops")
    assert answer.code == 1
    assert stable(answer.err + answer.out) == stable(reader.shown("break-step"))
    assert (reader.folder / "runs/oops/result.json").is_file()


def test_callbacks_find_the_optimizer_of_the_tutorial(reader: Reader) -> None:
    callbacks = json.dumps(["lr-monitor", {"use": "grad-clip", "max_norm": 1.0}])
    answer = reader.hostcore(
        "run", "job.json", "--set", f"callbacks={callbacks}", "--set", "max_steps=5", "--set", "run_id=lr", "--json"
    )
    assert answer.code == 0, answer.err
    assert "train/lr" in answer.json["metrics"]
