"""Metrics that are computed over the rows of all ranks at the end of an evaluation, by torchmetrics."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from torchmetrics.functional import classification

Run = Callable[..., Any]

#: On two ranks, 28 and 29: the first one repeats a batch. On three ranks all have 19, on four some have 14.
ROWS = 57


@pytest.fixture(scope="module")
def data(run: Any) -> Path:
    path: Path = run.folder / "ranked.parquet"
    pq.write_table(pq.read_table(run.data).slice(0, ROWS), path)
    return path


@pytest.fixture(scope="module")
def job(data: Path) -> dict[str, Any]:
    return {
        "trainer": "ranking_trainer:Trainer",
        "max_steps": 2,
        "validate_every": 1,
        "validation": {"parquet_paths": [str(data)], "batch_size": 7},
    }


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_are_those_of_all_rows_on_any_number_of_ranks(run: Run, job: dict[str, Any], data: Path, ranks: int) -> None:
    rows = {name: torch.tensor(values) for name, values in pq.read_table(data).to_pydict().items()}
    scores, labels = torch.sigmoid(rows["x"].float() - rows["y"].float()), (rows["row"] % 3 == 0).long()
    metrics = {"accuracy": "binary_accuracy", "auroc": "binary_auroc", "f1": "binary_f1_score"}
    expected = {f"val/{name}": float(getattr(classification, of)(scores, labels)) for name, of in metrics.items()}
    callbacks = ["rank_trainer:Ended", {"use": "best-checkpoint", "monitor": "val/auroc", "mode": "max"}]
    outcome = run(f"ranked-{ranks}", ranks, **job, callbacks=callbacks, test=job["validation"])
    assert outcome.codes == [0] * ranks, outcome.output()
    found = [event["metrics"] for event in outcome.events(name="validation")]
    assert found == [{"val/row": 28.0, **expected}] * 2
    (test,) = outcome.events(name="test")
    assert test["metrics"] == {"test/row": 28.0, **{f"test/{name[4:]}": value for name, value in expected.items()}}
    # Callbacks of all ranks are told the same, so they decide alike.
    ended = [json.loads((outcome.path / f"ended.{rank}.json").read_text()) for rank in range(ranks)]
    assert ended == [found] * ranks
    assert outcome.host(1)["progress"]["best"][0]["value"] == expected["val/auroc"]


def test_that_a_rank_cannot_compute_end_the_run_with_its_error(run: Run, job: dict[str, Any]) -> None:
    outcome = run("ranked-raise", 2, **job, hyperparams={"does": "raise:1"})
    assert (outcome.codes, outcome.hung) == ([1, 1], []), outcome.output()
    assert (outcome.error(1)["type"], outcome.error(1)["message"]) == ("ValueError", "there are no positive rows")
    assert outcome.error(0)["type"] == "DistributedError"


def test_of_a_name_that_is_taken_are_the_same_error_on_all_ranks(run: Run, job: dict[str, Any]) -> None:
    outcome = run("ranked-taken", 2, **job, hyperparams={"does": "taken"})
    assert (outcome.codes, outcome.hung) == ([1, 1], []), outcome.output()
    for rank in range(2):
        assert outcome.error(rank)["type"] == "InvalidStepResult"
        assert outcome.error(rank)["message"] == (
            "validate_step and evaluation_metrics both report 'val/row' at step 0"
        )


def test_that_are_no_metrics_of_the_first_rank_end_all_and_those_of_another_none(run: Run, job: dict[str, Any]) -> None:
    outcome = run("ranked-text", 2, **job, hyperparams={"does": "text:0"})
    assert (outcome.codes, outcome.hung) == ([1, 1], []), outcome.output()
    assert outcome.error(0)["type"] == "InvalidStepResult"
    message = "evaluation_metrics, after validate_step, at step 0, returned str"
    assert outcome.error(0)["message"] == message
    assert (outcome.error(1)["type"], outcome.error(1)["message"]) == ("DistributedError", f"rank 0: {message}")
    assert run("ranked-other-text", 2, **job, hyperparams={"does": "text:1"}).codes == [0, 0]
