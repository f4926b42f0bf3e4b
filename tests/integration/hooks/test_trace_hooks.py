"""``hostcore run --trace-hooks``: every call of a run, in a file of its own."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from hostcore.cli import cli

Play = Callable[..., Any]

ONE_STEP = """
    0  open_dataset  data_source:parquet#train (…)  (dataset={source: 'hostcore-builtin-plugins/parquet', …) -> FileDataset
    0  open_dataset  data_source:parquet#validation (…)  (dataset={source: 'hostcore-builtin-plugins/parquet', …) -> FileDataset
    0  setup  trainer:recorder:Trainer
    0  configure  trainer:recorder:Trainer -> {steps: 0}
    0  on_train_begin  callback:0:recorder:Callback
    0  prepare_batch  trainer:recorder:Trainer  (raw_batch=RecordBatch[2, 1]) -> [100, 101]
    0  validate_step  callback:1:recorder:Wrapper, wrapper
    0    validate_step  trainer:recorder:Trainer  (prepared_batch=[100, 101]) -> StepResult(metrics={loss: 100.5})
    0  validate_step -> StepResult(metrics={loss: 101.5})
    0  prepare_batch  trainer:recorder:Trainer  (raw_batch=RecordBatch[1, 1]) -> [102]
    0  validate_step  callback:1:recorder:Wrapper, wrapper
    0    validate_step  trainer:recorder:Trainer  (prepared_batch=[102]) -> StepResult(metrics={loss: 102})
    0  validate_step -> StepResult(metrics={loss: 103})
    0  evaluation_metrics  trainer:recorder:Trainer -> {steps: 0}
    0  on_sanity_checked  callback:0:recorder:Callback  (metrics={val/loss: 102, val/steps: 0})
    0  on_epoch_begin  callback:0:recorder:Callback
    0  prepare_batch  trainer:recorder:Trainer  (raw_batch=RecordBatch[2, 1]) -> [0, 1]
    0  on_batch_begin  callback:0:recorder:Callback  (batch=[0, 1])
    0  train_step  callback:1:recorder:Wrapper, wrapper
    0    train_step  trainer:recorder:Trainer  (prepared_batch=[0, 1]) -> StepResult(metrics={loss: 1})
    0  train_step -> StepResult(metrics={loss: 1})
    1  on_batch_end  callback:0:recorder:Callback  (result=StepResult(metrics={loss: 1}))
    1  state_dict  trainer:recorder:Trainer -> {steps: 1}
    1  on_validation_begin  callback:0:recorder:Callback
    1  prepare_batch  trainer:recorder:Trainer  (raw_batch=RecordBatch[2, 1]) -> [100, 101]
    1  validate_step  callback:1:recorder:Wrapper, wrapper
    1    validate_step  trainer:recorder:Trainer  (prepared_batch=[100, 101]) -> StepResult(metrics={loss: 100.5})
    1  validate_step -> StepResult(metrics={loss: 101.5})
    1  prepare_batch  trainer:recorder:Trainer  (raw_batch=RecordBatch[1, 1]) -> [102]
    1  validate_step  callback:1:recorder:Wrapper, wrapper
    1    validate_step  trainer:recorder:Trainer  (prepared_batch=[102]) -> StepResult(metrics={loss: 102})
    1  validate_step -> StepResult(metrics={loss: 103})
    1  evaluation_metrics  trainer:recorder:Trainer -> {steps: 1}
    1  on_validation_end  callback:0:recorder:Callback  (metrics={val/loss: 102, val/steps: 1})
    1  state_dict  trainer:recorder:Trainer -> {steps: 1}
    1  save_checkpoint  trainer:recorder:Trainer  (step=1, output_dir='…', final=True)
    1  on_checkpoint_saved  callback:0:recorder:Callback  (checkpoint=Checkpoint(step=1, epoch=0, path='…', bytes=…, …))
    1  on_train_end  callback:0:recorder:Callback
    1  teardown  trainer:recorder:Trainer
"""  # noqa: E501


def calls(path: Path) -> list[str]:
    """The lines of a trace without what differs from run to run."""
    _, *lines = path.read_text().splitlines()
    left_out = [
        (r"^ *[\d.]+ +(?=\d)", ""),
        (r"  [\d.e+-]+ ms", ""),
        (r"\(hostcore-builtin-plugins [^)]*\)", "(…)"),
        (r", batch_size: .*…}\)", ", …)"),
        (r"(?<=output_dir=|......path=)'[^']*'", "'…'"),
        (r"bytes=\d+", "bytes=…"),
    ]
    for pattern, to in left_out:
        lines = [re.sub(pattern, to, line) for line in lines]
    return lines


def test_has_every_call_with_its_component(play: Play, data: dict[str, Any]) -> None:
    callbacks = ["recorder:Callback", {"use": "recorder:Wrapper", "name": "around"}]
    validation = {"validation": data["validation"], "validate_every": 1}
    played = play(max_steps=1, callbacks=callbacks, **validation, trace_hooks=True)
    found = calls(played.path / "logs" / "hooks.rank-0.attempt-1.log")
    assert found == [line.strip() for line in ONE_STEP.strip().splitlines()]
    # Nobody has called anything that was not called without a trace.
    without = play(run_id="b", max_steps=1, callbacks=callbacks, **validation)
    assert played.calls == without.calls
    assert not list((without.path / "logs").glob("hooks*"))


def test_ends_with_the_call_that_failed_and_what_came_of_it(play: Play) -> None:
    played = play(trace_hooks=True, hyperparams={"acts": {"train_step at 1": "raise"}})
    assert calls(played.path / "logs" / "hooks.rank-0.attempt-1.log")[-3:] == [
        "1  train_step  trainer:recorder:Trainer  (prepared_batch=[2, 3]) raised ValueError: train_step went wrong",
        "1  on_exception  callback:0:recorder:Callback  (error=ValueError)",
        "1  teardown  trainer:recorder:Trainer",
    ]


def test_the_command_says_where_the_calls_go(play: Play, tmp_path: Path) -> None:
    (tmp_path / "recorder.py").write_text((Path(__file__).parent / "recorder.py").read_text())
    job = """{
        "trainer": "recorder:Trainer", "run_id": "a", "device": "cpu", "max_steps": 1, "terminal": false,
        "dataset": {"parquet_paths": "train.parquet"}
    }"""
    (tmp_path / "job.json").write_text(job.replace('"train.parquet"}', '"train.parquet", "batch_size": 2}'))
    result = CliRunner().invoke(cli, ["run", "job.json", "--in-process", "--trace-hooks"])
    assert result.exit_code == 0, result.output
    assert "a  every call of a hook goes to runs/a/logs/hooks.rank-0.attempt-1.log" in result.stderr
    assert "hook calls  runs/a/logs/hooks.rank-0.attempt-1.log" in result.stdout
    assert (tmp_path / "runs/a/logs/hooks.rank-0.attempt-1.log").read_text().count("train_step") == 1


def test_and_detach_exclude_each_other(play: Play) -> None:
    result = CliRunner().invoke(cli, ["run", "job.json", "--trace-hooks", "--detach"])
    assert (result.exit_code, "exclude each other" in result.stderr) == (2, True)
