"""What callbacks record with ``ctx.record``: metrics of the step, or one clear error."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import orjson
import pytest

from hostcore_hookspecs import StepContext

Play = Callable[..., Any]

DATA = {"parquet_paths": "numbers.parquet", "batch_size": 4}
JOB = {"trainer": "exact:Summing", "dataset": DATA, "max_steps": 5, "metric_every": 2}


def records(use: str = "exact:Records", instead: str = "", **names: list[str]) -> dict[str, Any]:
    return {"use": use, "names": names, "instead": instead}


def metrics(played: Any) -> dict[int, Mapping[str, Any]]:
    """By step, without the loss."""
    return {
        one.step: {name: value for name, value in one.payload.metrics.items() if name != "train/loss"}
        for one in played.of("metrics")
    }


@pytest.mark.parametrize("instead", ["", "tensor"])
def test_hooks_of_a_step_add_to_the_metrics_of_that_step_alone(play: Play, exact: ModuleType, instead: str) -> None:
    hooks = {"prepare_batch": ["p"], "on_batch_begin": ["lr"], "train_step": ["t"], "on_batch_end": ["mine/end"]}
    played = play(**JOB, callbacks=[records(instead=instead, **hooks)])
    assert played.result.error is None
    # The step is counted before on_batch_end.
    assert metrics(played) == {
        step: {"p": step - 1.0, "train/lr": step - 1.0, "t": step - 1.0, "mine/end": float(step)} for step in (2, 4, 5)
    }
    result = orjson.loads((played.path / "result.json").read_bytes())
    assert (result["metrics"]["mine/end"], result["metrics"]["train/lr"]) == (5.0, 4.0)
    without = play(**JOB, callbacks=[], run_id="without")
    losses = [[one.payload.metrics["train/loss"] for one in each.of("metrics")] for each in (played, without)]
    assert losses[0] == losses[1], "steps are trained alike"


def test_nothing_is_recorded_where_no_metrics_are(play: Play, exact: ModuleType) -> None:
    played = play(**{**JOB, "metric_every": 0}, callbacks=[records(on_batch_end=["mine"], on_batch_begin=["mine"])])
    assert (played.result.status, played.of("metrics")) == ("succeeded", [])


def test_a_value_that_is_not_finite_is_named(play: Play, exact: ModuleType) -> None:
    played = play(**JOB, callbacks=[records(instead="nan", on_batch_end=["mine"])])
    assert [(one.payload.metrics["mine"], list(one.payload.nonfinite)) for one in played.of("metrics")] == [
        (None, ["mine"])
    ] * 3


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (
            [records(on_batch_end=["loss"])],
            "exact:Records records 'train/loss' at step 2, which train_step reports already",
        ),
        (
            [records(on_batch_begin=["mine"]), records("exact:RecordsToo", on_batch_end=["mine"])],
            "exact:RecordsToo records 'mine' at step 2, which exact:Records reports already",
        ),
        (
            [records(instead="text", on_batch_end=["mine"])],
            "the metric 'mine' of exact:Records, recorded at step 2, is not a number: expected a number, got 'much' of"
            " class str",
        ),
    ],
    ids=["of the trainer", "of another callback", "not a number"],
)
def test_a_name_that_is_taken_or_no_number_is_an_error_that_names_the_callback(
    play: Play, exact: ModuleType, callbacks: list[Any], message: str
) -> None:
    played = play(**JOB, callbacks=callbacks)
    error = played.result.error
    assert (played.result.status, error.type, error.message) == ("failed", "InvalidStepResult", message)
    assert error.hint
    assert not error.traceback
    assert metrics(played) == {}


@pytest.mark.parametrize(
    "hook", ["on_train_begin", "on_epoch_begin", "on_validation_end", "on_checkpoint_saved", "on_train_end"]
)
def test_outside_of_a_step_it_is_an_error_that_names_the_callback_and_the_places(
    play: Play, exact: ModuleType, hook: str
) -> None:
    job = {**JOB, "trainer": "exact:Noisy", "validation": DATA, "validate_every": 2, "checkpoint_every": 1}
    played = play(**job, callbacks=[records(**{hook: ["mine"]})])
    error = played.result.error
    assert (played.result.status, error.type, error.plugin) == ("failed", "OutsideOfStep", "exact:Records")
    assert error.message == "ctx.record('mine', …) was called outside of a training step"
    assert "on_batch_end" in error.hint


def test_a_batch_of_a_validation_is_no_step(play: Play, exact: ModuleType) -> None:
    job = {**JOB, "trainer": "exact:Noisy", "validation": DATA, "validate_every": 3, "sanity_batches": 0}
    played = play(**job, callbacks=[records(prepare_batch=["mine"])])
    assert (played.result.error.type, played.result.step) == ("OutsideOfStep", 3)
    assert metrics(played)[2]["mine"] == 1.0


def test_a_context_made_by_hand_says_that_it_has_no_run() -> None:
    with pytest.raises(RuntimeError, match="record\\(\\) needs a run"):
        StepContext().record("mine", 1.0)
