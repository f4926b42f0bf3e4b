"""From prepared flights to a score, through the real host."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from flight_delay.features import ARRIVAL_DELAY, DEPARTURE_DELAY
from flight_delay.score import main
from prepared_job import job_over

import hostcore

JOB = Path(__file__).parents[1] / "job.json"


@pytest.fixture(scope="module")
def run_dir(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the package's own job, on few flights: one epoch of four steps."""
    runs = tmp_path_factory.mktemp("runs")
    job = job_over(prepared, JOB, batch_size=50, run_id="short", epochs=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOSTCORE_RUNS_DIR", str(runs))
        result = hostcore.run(job)
    assert result.status == "succeeded", result.error
    return runs / "short"


def gains(path: Path) -> np.ndarray:
    flights = pq.read_table(path)
    return flights[ARRIVAL_DELAY].to_numpy() - flights[DEPARTURE_DELAY].to_numpy()


def test_the_score_is_that_of_the_runs_own_test_next_to_that_of_the_baseline(
    run_dir: Path, prepared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(run_dir), "--data", str(prepared / "test.parquet")]
    assert main([*arguments, "--json"]) == 0
    score = json.loads(capsys.readouterr().out)
    train, test = (gains(prepared / name) for name in ("train.parquet", "test.parquet"))
    metrics = json.loads((run_dir / "result.json").read_text())["metrics"]
    assert (score["step"], score["flights"]) == (4, len(test)) == (4, 63)
    assert score["mae_minutes"] == pytest.approx(metrics["test/mae"])
    assert score["baseline_mae_minutes"] == pytest.approx(np.abs(test - train.mean()).mean())
    assert score["improvement_percent"] == pytest.approx(
        100 * (1 - score["mae_minutes"] / score["baseline_mae_minutes"])
    )
    assert main(arguments) == 0
    words = capsys.readouterr().out
    assert "the model at step 4" in words
    assert "departure delay + mean gain" in words


def test_a_folder_that_is_no_run_is_one_error(
    tmp_path: Path, prepared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "--data", str(prepared / "test.parquet")]) == 2
    assert f"{tmp_path / 'result.json'}: no result of a run" in capsys.readouterr().err


def test_flights_that_are_not_prepared_are_one_error(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run_dir), "--data", str(tmp_path / "absent.parquet")]) == 2
    assert "prepare_data" in capsys.readouterr().err


def test_a_model_for_other_columns_is_refused(
    run_dir: Path, prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(run_dir, tmp_path / "run")
    (description,) = copy.glob("checkpoints/*/trainer/model.json")
    description.write_text(description.read_text().replace("distance_miles", "distance_km"))
    assert main([str(copy), "--data", str(prepared / "test.parquet")]) == 2
    assert "other columns" in capsys.readouterr().err
