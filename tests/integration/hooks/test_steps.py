"""What a step is made of: micro-batches, precision; and what a trainer must declare to be asked for them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from fork_server import ran

from hostcore_hookspecs import HostcoreError

Play = Callable[..., Any]


def numbers(batch_size: int) -> dict[str, Any]:
    return {"parquet_paths": "numbers.parquet", "batch_size": batch_size}


def losses(played: Any) -> list[float]:
    return [one.payload.metrics["train/loss"] for one in played.of("metrics")]


@pytest.mark.parametrize("asked", [{"accumulate": 4}, {"global_batch_size": 16}], ids=["asked for", "derived"])
def test_four_micro_batches_equal_one_batch_four_times_as_large(
    play: Play, exact: ModuleType, asked: dict[str, Any]
) -> None:
    job = {"trainer": "exact:Summing", "callbacks": [], "epochs": 3}
    large = play(**job, run_id="large", dataset=numbers(16))
    assert exact.seen == [1] * 6
    small = play(**job, run_id="small", dataset=numbers(4), **asked)
    assert exact.seen[6:] == [4] * 6
    torch.testing.assert_close(losses(small), losses(large), rtol=1e-12, atol=1e-12)
    assert [one.step for one in small.of("metrics")] == [1, 2, 3, 4, 5, 6]
    assert small.result.epoch == 2


def test_the_scaler_of_fp16_is_restored(play: Play, exact: ModuleType) -> None:
    job = {"trainer": "exact:Mixed", "callbacks": [], "dataset": numbers(4), "precision": "fp16"}
    first = play(**job, max_steps=2)
    assert first.result.metrics["scale"] == 32768  # the gradients of the first step overflow, and halve it
    resumed = play(**job, max_steps=3)
    assert [(one.step, one.payload.metrics["scale"]) for one in resumed.of("metrics")] == [(3, 32768)]


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_autocast_is_of_the_precision_of_the_job(
    play: Play, exact: ModuleType, precision: str, dtype: torch.dtype
) -> None:
    play(trainer="exact:Mixed", callbacks=[], dataset=numbers(4), precision=precision, max_steps=1)
    assert exact.seen == [(dtype, dtype)]


@pytest.mark.parametrize(
    ("keys", "pointer", "message"),
    [
        ({"precision": "bf16"}, "/precision", "does not train in bf16"),
        ({"accumulate": 2}, "/accumulate", "does not accumulate"),
        ({"global_batch_size": 8}, "/global_batch_size", "does not accumulate"),
        ({"validation": numbers(4), "validate_every": 1}, "/validation", "no validate_step"),
        ({"test": numbers(4)}, "/test", "no test_step"),
        ({"samples": [{"prompt": "a dog"}], "sample_every": 1}, "/samples", "no generate_sample"),
    ],
)
def test_what_a_trainer_does_not_declare_is_refused_before_the_run(
    play: Play, exact: ModuleType, keys: dict[str, Any], pointer: str, message: str
) -> None:
    with pytest.raises(HostcoreError, match=message) as caught:
        play(trainer="exact:Required", callbacks=[], dataset=numbers(4), max_steps=1, **keys)
    (error,) = caught.value.errors
    assert (error.code, error.pointer, error.plugin) == ("trainer.capability", pointer, "exact:Required")
    assert error.hint


def test_several_ranks_are_refused_for_a_trainer_that_does_not_declare_them(exact: ModuleType, tmp_path: Path) -> None:
    shutil.copy(str(exact.__file__), tmp_path)
    job = {"trainer": "exact:Required", "dataset": numbers(4), "max_steps": 1, "devices": ["cpu", "cpu"]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    refused = ran(["run", "job.json", "--json"], cwd=tmp_path)
    assert refused.returncode == 2
    (error,) = json.loads(refused.stdout)["errors"]
    assert (error["code"], error["pointer"]) == ("trainer.capability", "/devices")
    assert "does not train on several ranks" in error["message"]
    assert not list((tmp_path / "runs").glob("*"))


def test_all_that_a_trainer_lacks_is_said_at_once(play: Play, exact: ModuleType) -> None:
    asked = {"precision": "fp16", "accumulate": 2, "test": numbers(4)}
    with pytest.raises(HostcoreError) as caught:
        play(trainer="exact:Required", callbacks=[], dataset=numbers(4), max_steps=1, **asked)
    assert [error.pointer for error in caught.value.errors] == ["/precision", "/accumulate", "/test"]
