"""``nonfinite-guard``, ``grad-clip``, ``profiler`` and ``oom-hint`` in whole runs."""

import gzip
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fork_server import ran
from played import Played

from hostcore.errors import Errors

JOB = {
    "trainer": "guarded:Trainer",
    "run_id": "a",
    "terminal": False,
    "device": "cpu",
    "mock_batches": [1],
    "metric_every": 1,
    "max_steps": 6,
}


@pytest.fixture
def run(run_job: Callable[..., Played]) -> Callable[..., Played]:
    """``run("oom-hint", hungry=3)``: a run of the trainer with callbacks; other keys are hyperparameters."""
    return lambda *callbacks, job=None, **hyperparams: run_job({**JOB, **(job or {})}, *callbacks, **hyperparams)


Run = Callable[..., Played]


@pytest.mark.parametrize("wrong", ["nan", "nan_gradients"])
def test_stop_fails_the_run_in_the_name_of_the_callback_and_keeps_no_checkpoint_of_it(run: Run, wrong: str) -> None:
    outcome = run("nonfinite-guard", job={"checkpoint_every": 1}, **{wrong: [3]})
    result = outcome.result
    assert (result.status, result.exit_code) == ("failed", 1)
    assert result.error.message.endswith("was nan at step 3")
    assert result.error.plugin.startswith("nonfinite-guard (hostcore-builtin-plugins")
    assert "set_detect_anomaly" in result.error.hint
    assert result.error.traceback == ""
    assert {event.step for event in outcome.events if event.name == "checkpoint_saved"} == {1, 2}


@pytest.mark.parametrize(("wrong", "optimizer"), [("nan", "AdamW"), ("nan_gradients", "SGD")])
def test_skip_goes_on_as_if_the_step_had_not_been_and_says_so(run: Run, wrong: str, optimizer: str) -> None:
    skipping = run({"use": "nonfinite-guard", "action": "skip"}, optimizer=optimizer, **{wrong: [3, 5]})
    assert skipping.result.status == "succeeded"
    weight = skipping.metric("weight")
    assert weight[2] == weight[3] != weight[4]
    assert list(skipping.metric("train/skipped_steps").values()) == [0, 0, 1, 1, 2, 2]
    _, last = skipping.warnings
    assert "at step 5, so the update was skipped; 2 so far (nonfinite-guard (hostcore-builtin-plugins" in last
    undisturbed = run(optimizer=optimizer, job={"run_id": "b"})
    assert [weight[step] for step in (1, 2, 4, 6)] == [undisturbed.metric("weight")[step] for step in (1, 2, 3, 4)]


def test_skipped_steps_are_counted_over_a_resume(run: Run) -> None:
    guard = {"use": "nonfinite-guard", "action": "skip"}
    interrupted, wishes = {"use": "chaos", "faults": ["sigint@step=4"]}, {"nan": [2, 3, 6]}
    assert run(guard, interrupted, **wishes).result.status == "cancelled"
    assert list(run(guard, interrupted, **wishes).metric("train/skipped_steps").items()) == [(5, 2), (6, 3)]


def test_a_roll_back_restores_the_trainer_and_goes_on(run: Run) -> None:
    guard = {"use": "nonfinite-guard", "action": "roll-back"}
    outcome = run(guard, nan=[5], job={"checkpoint_every": 2, "max_steps": 8})
    assert outcome.result.status == "succeeded"
    (restored,) = [one.payload for one in outcome.events if one.name == "trainer_restored"]
    assert restored.reason == "train/loss was nan at step 5"
    assert restored.restored_step in (2, 4), "the newest that was written by then"
    assert restored.requested_by.startswith("nonfinite-guard (")
    weight = outcome.metric("weight")
    assert weight[6] in (weight[3], weight[5]), "the update after a checkpoint is made again"
    assert outcome.metric("train/roll_backs")[8] == 1
    assert all(value is not None for step, value in weight.items() if step != 5)


def test_a_run_that_is_interrupted_keeps_no_checkpoint_of_what_was_not_read_yet(run: Run) -> None:
    guard = {"use": "nonfinite-guard", "check_every": 100}
    interrupted = {"use": "chaos", "faults": ["sigint@step=4"]}
    result = run(guard, interrupted, nan=[3], job={"checkpoint_every": 2}).result
    assert (result.status, result.error.message) == ("failed", "train/loss was nan at step 3")
    assert result.final_checkpoint is None or result.final_checkpoint.endswith("step-000002")


def test_in_fp16_what_the_scaler_skips_is_not_counted(run: Run) -> None:
    guard = {"use": "nonfinite-guard", "action": "skip"}
    outcome = run(guard, {"use": "grad-clip", "max_norm": 1.0}, nan_gradients=[2, 4], job={"precision": "fp16"})
    assert outcome.result.status == "succeeded", outcome.result.error
    weight = outcome.metric("weight")
    assert weight[1] == weight[2] != weight[3]
    assert set(outcome.metric("train/skipped_steps").values()) == {0}


def test_a_metric_that_is_not_reported_makes_the_job_invalid(run: Run) -> None:
    with pytest.raises(Errors, match="watches 'train/lss', which train_step has not reported") as caught:
        run({"use": "nonfinite-guard", "metrics": ["train/lss"]})
    assert [error.pointer for error in caught.value.errors] == ["/callbacks/0/metrics"]


@pytest.mark.parametrize("callback", ["nonfinite-guard", {"use": "grad-clip", "max_norm": 1.0}])
def test_a_trainer_that_registers_no_optimizer_makes_the_job_invalid(run: Run, callback: Any) -> None:
    with pytest.raises(Errors, match="the trainer has registered none") as caught:
        run("oom-hint", callback, register=False)
    (error,) = caught.value.errors
    assert error.pointer == "/callbacks/1"
    assert "ctx.register_optimizer(optimizer)" in error.hint


def test_clipping_is_what_the_update_is_made_with_and_the_norm_is_recorded(run: Run) -> None:
    outcome = run({"use": "grad-clip", "max_norm": 1e-3}, job={"max_steps": 2})
    weight, norm = outcome.metric("weight"), outcome.metric("train/grad_norm")
    assert norm[1] > 1e-3
    assert 0 < abs(weight[2] - weight[1]) <= 0.1 * 1e-3 * math.sqrt(2)


def test_the_trace_lies_in_the_run_directory_also_of_a_run_that_fails(run: Run, tmp_path: Path) -> None:
    result = run({"use": "profiler", "start_step": 1, "warmup": 1, "steps": 10}, broken=4).result
    assert (result.status, result.error.message) == ("failed", "a bad batch")
    folder = tmp_path / "runs/a/profiler"
    assert sorted(path.name for path in folder.iterdir()) == ["rank-0.step-2-4.json.gz", "rank-0.step-2-4.txt"]
    with gzip.open(folder / "rank-0.step-2-4.json.gz", "rt") as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    assert names.count("Optimizer.step#SGD.step") == 2


def test_an_error_for_lack_of_memory_names_the_batch_and_what_to_change(run: Run) -> None:
    error = run("oom-hint", hungry=3).result.error
    assert error.type == "RuntimeError"
    assert "can't allocate memory" in error.message
    assert error.plugin is None or "guarded" in error.plugin
    assert "memory ran out in step 3, with the batch x: float32[3, 2] on cpu (24 B)" in error.traceback
    assert "torch.utils.checkpoint" in error.hint


def test_all_callbacks_go_together(run: Run) -> None:
    callbacks = [
        {"use": "nonfinite-guard", "action": "skip"},
        {"use": "grad-clip", "max_norm": 0.5},
        {"use": "profiler", "start_step": 0, "warmup": 0, "steps": 1},
        *("oom-hint", "lr-monitor", "throughput", "csv-metrics"),
    ]
    outcome = run(*callbacks, nan=[3])
    assert outcome.result.status == "succeeded", outcome.result.error
    assert {"train/loss", "train/lr", "train/grad_norm", "train/skipped_steps"} <= outcome.result.metrics.keys()


def test_what_is_told_reaches_the_event_log_and_the_terminal(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    callbacks = [{"use": "nonfinite-guard", "action": "skip"}, "oom-hint"]
    job = {**JOB, "callbacks": callbacks, "hyperparams": {"nan": [2], "hungry": 4}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    answer = ran(
        ["run", "job.json"],
        cwd=tmp_path,
        env={**os.environ, "HOSTCORE_RUNS_DIR": "", "PYTHONPATH": here},
        text=True,
    )
    assert answer.returncode == 1
    assert "memory ran out in step 4" in answer.stderr
    assert "hint: lower window_bytes" in answer.stderr
    log = (tmp_path / "runs/a/logs/events.jsonl").read_text()
    assert "nonfinite-guard: train/loss was nan at step 2, so the update was skipped; 1 so far" in log
