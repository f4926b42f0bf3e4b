"""Configurations of LightningCLI: the job that ``hostcore from-lightning`` makes of them, and its run."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from lit_watch import WATCHED

from hostcore.errors import Errors
from hostcore.in_process import run as run_here
from hostcore_lightning.converting import CannotConvert, converted
from hostcore_lightning.from_lightning import from_lightning_command

CONFIG = """\
seed_everything: 5
model:
  activation: {class_path: torch.nn.Tanh}
optimizer: &optimizer
  class_path: torch.optim.Adam
  init_args: {lr: 1e-2}
lr_scheduler: {class_path: torch.optim.lr_scheduler.ExponentialLR, init_args: {gamma: 0.9}}
trainer:
  max_steps: 20
  accelerator: cpu
  enable_progress_bar: false
  enable_model_summary: false
  logger: false
  limit_val_batches: 0
  callbacks:
    - class_path: lit_watch.Watch
"""

WRITTEN = "job.json is written: hostcore validate job.json; hostcore run job.json\n"


def from_lightning(*arguments: str) -> tuple[int, str]:
    """Exit code and output of the command."""
    done = CliRunner().invoke(from_lightning_command, arguments)
    return done.exit_code, done.output


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The job of the program ``lit_cli``."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG)
    made, notes = converted([Path("config.yaml")], cli="lit_cli:cli_main")
    assert notes == []
    made["hyperparams"]["gradient_clip_val"] = 0.1  # which the program has in trainer_defaults
    return {**made, "run_id": "cli", "metric_every": 1, "terminal": False}


def test_a_program_of_the_cli_trains_the_same_and_goes_on_the_same(job: dict[str, Any]) -> None:
    from lit_cli import Net, cli_main

    cli_main(["fit", "--config", "config.yaml"])
    theirs = WATCHED[-1]
    assert len(theirs.losses) == 20
    made = Net.made
    assert run_here(job).status == "succeeded"
    assert WATCHED[-1].losses == theirs.losses
    assert WATCHED[-1].rates == theirs.rates
    assert Net.made == made + 1, "only the module that is trained is made"
    for steps in (7, 20):
        assert run_here({**job, "run_id": "killed", "max_steps": steps}).status == "succeeded"
    assert WATCHED[-1].losses == theirs.losses[7:]
    for run, texts in {"cli": ["is left out"], "killed": ["has 7, which counts", "is left out"]}.items():
        events = [json.loads(line) for line in Path(f"runs/{run}/logs/events.jsonl").read_text().splitlines()]
        warned = [one["message"] for one in events if one["event"] == "warning" and one["attempt"] == 1]
        assert all(text in one for text, one in zip(texts, warned, strict=True)), warned


def test_a_plain_configuration_names_its_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text("class_path: user_modules.Plain\n")
    Path("config.yaml").write_text("fit: {model: model.yaml, data: user_modules.Data, trainer: {max_epochs: 9}}\n")
    Path("short.yaml").write_text(
        "seed_everything: 1\ntrainer: {max_epochs: 1, check_val_every_n_epoch: null, devices: 1}\n"
    )
    assert from_lightning("config.yaml", "short.yaml", "-o", "job.json") == (0, WRITTEN)
    made = json.loads(Path("job.json").read_text())
    assert made["hyperparams"]["module"] == "user_modules:Plain"
    assert made["epochs"] == 1
    assert run_here({**made, "validate_every": 0, "device": "cpu", "terminal": False}).status == "succeeded"


@pytest.mark.parametrize(
    ("change", "pointer", "message"),
    [
        ({"config": {"model": {"widht": 3}}}, "/config", "does not accept"),
        ({"gradient_clip_val": None}, "/config", "trainer.gradient_clip_val of the config is not in the job"),
        ({"init": {"inputs": 3}}, "/init", "init stands beside config"),
        ({"module": "lit_cli:Net"}, "/module", "module stands beside cli, which is a function"),
        ({"cli": "lit_cli:nothing"}, "/cli", "makes no LightningCLI"),
        ({"cli": "lit_cli:Net"}, "/cli", "is no LightningCLI"),
        ({"cli": "lit_cli:cli_without_trainer"}, "/cli", "makes a Trainer itself"),
        ({"cli": None, "config": None}, "/module", "names no module"),
    ],
)
def test_what_does_not_fit_is_one_error(
    job: dict[str, Any], change: dict[str, Any], pointer: str, message: str
) -> None:
    job["hyperparams"] |= change
    with pytest.raises(Errors) as caught:
        run_here(job)
    (error,) = caught.value.errors
    assert error.pointer == f"/hyperparams{pointer}"
    assert message in error.message
    assert error.hint


TRAINER: dict[str, tuple[Any, dict[str, Any]]] = {
    "precision": ("bf16-mixed", {"precision": "bf16"}),
    "accumulate_grad_batches": (4, {"accumulate": 4}),
    "val_check_interval": (100, {"validate_every": 100}),
    "num_sanity_val_steps": (-1, {"sanity_batches": 1_000_000}),
    "log_every_n_steps": (5, {"metric_every": 5}),
    "devices": ("0,1", {"devices": ["cuda:0", "cuda:1"]}),
    "deterministic": ("warn", {"deterministic": True}),
    "max_epochs": (-1, {"epochs": 1000}),
}
ELSEWHERE: dict[str, tuple[Any, str]] = {
    "precision": ("64-true", "none of fp32, bf16 and fp16"),
    "strategy": ("fsdp", "hostcore trains with DDP"),
    "logger": ({"class_path": "CSVLogger"}, "reporters record the metrics"),
    "val_check_interval": (0.25, "a number of steps"),
    "limit_train_batches": (0.1, "a part of the dataset"),
    "max_epoch": (3, "no argument of lightning's Trainer"),
    "accelerator": ("tpu", "no device of a job"),
}


def convert(folder: Path, trainer: dict[str, Any], **more: Any) -> tuple[dict[str, Any], list[str]]:
    path = folder / "config.yaml"
    path.write_text(json.dumps({"model": {"class_path": "a.B"}, "seed_everything": 1, "trainer": trainer, **more}))
    return converted([path])


@pytest.mark.parametrize("name", TRAINER)
def test_an_argument_of_the_trainer_becomes_a_key_of_the_job(tmp_path: Path, name: str) -> None:
    value, keys = TRAINER[name]
    job, _ = convert(tmp_path, {name: value})
    assert {key: job[key] for key in keys} == keys


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_argument_that_no_key_stands_for_is_named_with_where_it_goes(tmp_path: Path, name: str) -> None:
    value, way_out = ELSEWHERE[name]
    _, notes = convert(tmp_path, {"max_epochs": 1, name: value})
    (note,) = notes
    assert note.startswith(f"trainer.{name} is left out: ")
    assert way_out in note


def test_callbacks_that_the_job_has_the_like_of_become_its_own(tmp_path: Path) -> None:
    checkpoints = {
        "class_path": "ModelCheckpoint",
        "init_args": {"monitor": "val_acc", "mode": "max", "every_n_epochs": 1},
    }
    stays = {"class_path": "EarlyStopping", "init_args": {"monitor": "val_acc"}}
    job, notes = convert(tmp_path, {"max_epochs": 1, "callbacks": [checkpoints, stays, "LearningRateMonitor"]})
    assert job["callbacks"] == [{"use": "best-checkpoint", "monitor": "val/acc", "mode": "max"}, {"use": "lr-monitor"}]
    assert job["checkpoint_every"] == "epoch"
    assert job["hyperparams"]["config"]["trainer"] == {"callbacks": [stays]}
    assert notes == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: [", "it is no YAML"),
        ("3", "it holds no mapping"),
        ("{model: {class_path: a.B}, trainer: 3}", "trainer is no mapping"),
        ("optimizer: {}", "it has no model, data or trainer"),
        ("model: {width: 3}", "model names no class"),
        ("model: {class_path: a.B, init_args: {x: '${data.x}'}}", "refers to other values"),
        ("model: {class_path: a.B, init_args: {x: .inf}}", "infinite number"),
    ],
)
def test_a_file_that_is_none_is_one_error_and_nothing_is_written(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    code, said = from_lightning(f"{tmp_path}/config.yaml", "-o", f"{tmp_path}/job.json")
    assert (code, "Traceback" in said) == (2, False), said
    assert message in said
    assert not (tmp_path / "job.json").exists()


def test_a_file_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model: a.B\n")
    (tmp_path / "job.json").write_text("mine")
    _, said = from_lightning(f"{tmp_path}/config.yaml", "-o", f"{tmp_path}/job.json")
    assert "the file exists" in said
    assert (tmp_path / "job.json").read_text() == "mine"
    with pytest.raises(CannotConvert, match="cannot be read"):
        converted([tmp_path / "missing.yaml"])
