"""The first validation batches, evaluated before the first step: mistakes are found then, and nothing else changes."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Play = Callable[..., Any]

NUMBERS = {"parquet_paths": "numbers.parquet", "batch_size": 4}
NOISY = {"trainer": "exact:Noisy", "callbacks": [], "dataset": NUMBERS, "max_steps": 4}


def of_the_end(played: Any) -> dict[str, str]:
    """Digests of the files of the final checkpoint, but for the one that names the run."""
    record = json.loads((played.path / played.result.final_checkpoint).with_suffix(".json").read_bytes())
    return {one["path"]: one["sha256"] for one in record["files"] if one["path"] != "host.json"}


def test_the_run_is_the_same_with_and_without_it(play: Play, exact: ModuleType) -> None:
    job = {**NOISY, "validation": {**NUMBERS, "batch_size": 5}, "validate_every": 2}
    checked, unchecked = (play(**job, run_id=f"with-{count}", sanity_batches=count) for count in (2, 0))
    validated = [one.payload.metrics for one in checked.of("validation")]
    assert len(validated) == 2
    assert validated == [one.payload.metrics for one in unchecked.of("validation")]
    digests = of_the_end(checked)
    assert digests == of_the_end(unchecked)
    assert {"rank-0.safetensors", "state.safetensors"} <= digests.keys()


def test_it_takes_so_many_batches_of_a_run_that_validates(play: Play, exact: ModuleType) -> None:
    job = {**NOISY, "validation": NUMBERS, "max_steps": 1}
    for every, given, expected in ((1, {}, 2), (1, {"sanity_batches": 99}, 8), (0, {}, 0)):
        exact.seen.clear()
        play(**job, run_id=f"{every}-{expected}", validate_every=every, **given)
        first = [name for name, *_ in exact.seen].index("train")
        assert first == expected


def test_what_a_trainer_asks_for_meanwhile_is_ignored(play: Play, data: dict[str, Any]) -> None:
    acts = {"acts": {"validate_step at 0": "stop", "evaluation_metrics at 0": "stop"}}
    played = play(hyperparams=acts, validation=data["validation"], validate_every=2)
    assert (played.result.status, played.result.step, played.of("stop_requested")) == ("succeeded", 3, [])
    assert played.result.best == {"metric": "val/loss", "value": 101.0, "step": 2}  # of the validation


def test_metrics_that_need_more_rows_are_computed_of_all_and_leave_nothing_behind(
    play: Play, exact: ModuleType, tmp_path: Path
) -> None:
    values = [1.0, 3.0, 30.0, 2.0, 2.0]
    pq.write_table(pa.table({"y": values, "weight": [1.0] * 5}), tmp_path / "weighed.parquet")
    weighed = {"parquet_paths": "weighed.parquet", "batch_size": 1}
    job = {"trainer": "exact:Ranging", "hyperparams": {"rows": 3}, "dataset": weighed, "max_steps": 1}
    watch = {"use": "best-checkpoint", "monitor": "val/range", "mode": "max"}
    played = play(**job, validation=weighed, validate_every=1, callbacks=[watch])
    assert played.result.status == "succeeded", played.result.error
    (validation,) = played.of("validation")
    assert (validation.payload.metrics["val/range"], validation.payload.metrics["deep/rows"]) == (29.0, 5.0)
    (warning,) = [one.payload for one in played.of("warning") if one.payload.code == "sanity.all"]
    assert "evaluation_metrics raised ValueError: 2 rows are too few after the first batches" in warning.message


def test_a_validation_that_cannot_be_made_is_a_warning_and_changes_nothing(play: Play, exact: ModuleType) -> None:
    job = {**NOISY, "trainer": "exact:AfterAStep", "validation": {**NUMBERS, "batch_size": 5}, "validate_every": 2}
    checked, unchecked = (play(**job, run_id=f"with-{count}", sanity_batches=count) for count in (2, 0))
    assert (checked.result.status, checked.result.step) == ("succeeded", 4)
    (warning,) = [one for one in checked.of("warning") if one.payload.code == "sanity.failed"]
    assert warning.step == 0
    assert "ZeroDivisionError: division by zero (" in warning.payload.message
    assert [one.step for one in checked.of("validation")] == [2, 4]
    assert of_the_end(checked) == of_the_end(unchecked)


def test_a_validation_that_cannot_be_made_ends_the_run_of_a_trainer_that_may_have_counted_batches(
    play: Play, data: dict[str, Any]
) -> None:
    played = play(
        hyperparams={"acts": {"validate_step at 0": "raise"}}, validation=data["validation"], validate_every=3
    )
    assert (played.result.status, played.result.step, played.result.error.type) == ("failed", 0, "ValueError")
    assert not any("train_step" in call for call in played.calls)
