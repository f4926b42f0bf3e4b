"""``lr-monitor``, ``throughput`` and ``csv-metrics`` in whole runs."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from played import Played

from hostcore.errors import Errors

DATA = {"source": "mock", "num_rows": 8, "batch_size": 2}
JOB = {
    "trainer": "watched:Trainer",
    "dataset": DATA,
    "metric_every": 3,
    "max_steps": 7,
}
EVALUATED = {"validation": DATA, "test": DATA, "validate_every": 2}


@pytest.fixture
def run(run_job: Callable[..., Played]) -> Callable[..., Played]:
    """``run(max_steps=4)``: a run that ends as expected."""

    def start(*callbacks: Any, expect: str = "succeeded", **keys: Any) -> Played:
        played = run_job({**JOB, **keys}, *callbacks)
        assert played.result.status == expect, played.result.error
        return played

    return start


def rows(tmp_path: Path, split: str) -> dict[int, dict[str, float]]:
    """A CSV file, by step; fails where a step comes twice."""
    with (tmp_path / "runs" / "a" / "csv-metrics" / f"{split}.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    steps = [int(row.pop("step")) for row in read]
    assert steps == sorted(set(steps))
    return {
        step: {name: float(value) for name, value in row.items() if value}
        for step, row in zip(steps, read, strict=True)
    }


def test_the_learning_rate_of_each_update_is_recorded_with_the_other_metrics(run: Callable[..., Any]) -> None:
    metrics = run("lr-monitor").recorded()
    assert {step: values["train/lr"] for step, values in metrics.items()} == {3: 0.25, 6: 2.0**-5, 7: 2.0**-6}
    assert {step: values["train/loss"] for step, values in metrics.items()} == {3: 1 / 3, 6: 1 / 6, 7: 1 / 7}


def test_a_trainer_without_a_registered_optimizer_is_an_invalid_job(run: Callable[..., Any]) -> None:
    with pytest.raises(Errors) as caught:
        run("lr-monitor", hyperparams={"registers": False})
    (error,) = caught.value.errors
    assert error.message == "the trainer has registered no optimizer, so there is no learning rate to record"
    assert error.pointer == "/callbacks/0"
    assert "lr-monitor" in error.plugin


def test_tokens_per_second_and_step_times_are_recorded(run: Callable[..., Any]) -> None:
    metrics = run({"use": "throughput", "unit": "tokens"}, **EVALUATED).recorded()
    assert sorted(metrics) == [3, 6, 7]
    for values in metrics.values():
        times = [values[f"throughput/step_seconds_{name}"] for name in ("p50", "p95", "max")]
        assert 0 < times[0] <= times[1] <= times[2]
    # The last report is of one step with 700 tokens.
    last = metrics[7]
    tokens = last["throughput/tokens_per_second"] * last["throughput/step_seconds_max"]
    assert tokens == pytest.approx(700)


def test_the_csv_files_have_what_the_events_have(run: Callable[..., Any], tmp_path: Path) -> None:
    played = run("lr-monitor", "csv-metrics", **EVALUATED)
    assert rows(tmp_path, "train") == played.recorded()
    assert rows(tmp_path, "validation") == played.recorded("validation")
    assert rows(tmp_path, "test") == played.recorded("test")
    assert (sorted(rows(tmp_path, "train")), sorted(rows(tmp_path, "validation"))) == ([3, 6, 7], [2, 4, 6, 7])


def test_the_csv_files_of_a_run_that_resumed_have_each_step_once(run: Callable[..., Any], tmp_path: Path) -> None:
    interrupted, job = {"use": "chaos", "faults": ["sigint@step=5"]}, {"metric_every": 1, **EVALUATED}
    first = run("csv-metrics", interrupted, expect="cancelled", **job)
    second = run("csv-metrics", interrupted, **job)
    assert rows(tmp_path, "train") == {**first.recorded(), **second.recorded()}
    assert rows(tmp_path, "validation") == {**first.recorded("validation"), **second.recorded("validation")}
    assert sorted(rows(tmp_path, "train")) == [1, 2, 3, 4, 5, 6, 7]


def test_rows_after_the_checkpoint_that_a_run_resumes_from_are_removed(run: Callable[..., Any], tmp_path: Path) -> None:
    job = {"metric_every": 1, "checkpoint_every": 4, **EVALUATED}
    run("csv-metrics", expect="failed", **job, hyperparams={"training": [1.0] * 6})  # has no loss for step 7
    assert sorted(rows(tmp_path, "train")) == [1, 2, 3, 4, 5, 6]
    shown = tmp_path / "runs" / "a" / "csv-metrics" / "train.csv"
    shown.write_text(shown.read_text() + "5,77.0\n6,77.0\n7,77.0\n")
    played = run("csv-metrics", expect="failed", **job, hyperparams={"training": [1.0] * 6})
    assert sorted(played.recorded()) == [5, 6]
    assert rows(tmp_path, "train") == {step: {"train/loss": 1.0} for step in range(1, 7)}
    assert {path.name for path in shown.parent.iterdir()} == {"train.csv", "validation.csv"}
