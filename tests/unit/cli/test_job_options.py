"""How ``run`` and ``validate`` let people change a job, and what they say when it is done wrongly."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore_builtin_plugins.extras import install_command


@pytest.fixture(autouse=True)
def _job(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"trainer": "a:B", "max_steps": 1}')


@pytest.mark.parametrize("command", ["run", "validate"])
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["--epochs", "2"], "--set epochs=2"),
        (["--max-steps=5"], "--set max_steps=5"),
        (["--batch-size", "64"], "--set dataset.batch_size=64"),
        (["--dataset.shuffle", "true"], "--set dataset.shuffle=true"),
        (["--deterministic"], "--set deterministic=…"),
        (["--deterministic", "--json"], "--set deterministic=…"),
        (["--learning-rate", "0.1"], "--set hyperparams.learning_rate=0.1"),
    ],
    ids=" ".join,
)
def test_a_key_of_a_job_as_an_option_is_told_how_to_be_set(
    hostcore: Callable, command: str, typed: list[str], meant: str
) -> None:
    said = hostcore(command, "job.json", *typed)
    assert said.code == 2
    assert f"No such option '{typed[0].partition('=')[0]}'. Keys of the job are set so: {meant}\n" in said.err


@pytest.mark.parametrize(("typed", "near"), [("--proflie", "--profile"), ("--weigths", "--weights")])
def test_a_mistyped_option_is_told_the_nearest(hostcore: Callable, typed: str, near: str) -> None:
    said = hostcore("run", "job.json", typed, "x")
    assert said.code == 2
    assert f"Did you mean '{near}'?" in said.err


def test_an_unknown_letter_is_no_key_of_a_job(hostcore: Callable) -> None:
    said = hostcore("run", "job.json", "-x")
    assert said.code == 2
    assert "No such option '-x'" in said.err
    assert "--set" not in said.err


@pytest.mark.parametrize(
    ("options", "pointer", "origin"),
    [
        (["--set", "seed=x"], "/seed", "--set seed"),
        (["--set", "trainer=no-such-trainer"], "/trainer", "--set trainer"),
        (["--devices", "cpu,gpu"], "/devices/1", "--devices"),
        (["--weights", "\0"], "/weights", "--weights"),
        ([], "/max_steps", "job.json"),
    ],
    ids=str,
)
def test_an_error_names_the_option_that_is_to_blame(
    hostcore: Callable, tmp_path: Path, options: list[str], pointer: str, origin: str
) -> None:
    if not options:
        (tmp_path / "job.json").write_text('{"trainer": "a:B", "max_steps": -1}')
    (error,) = hostcore("validate", "job.json", *options, "--json").json["errors"]
    assert (error["pointer"], error["file"]) == (pointer, origin)


@pytest.mark.parametrize("command", ["run", "validate"])
def test_the_job_file_is_an_argument_or_an_option_but_not_both(hostcore: Callable, command: str) -> None:
    by_option = hostcore(command, "--config", "job.json", "--set", "seed=x", "--json")
    assert by_option.json == hostcore(command, "job.json", "--set", "seed=x", "--json").json
    assert hostcore(command, "--config", "missing.json", "--json").json["errors"][0]["file"] == "missing.json"
    for given, told in (([], "Missing argument 'JOB'"), (["job.json", "--config", "job.json"], "exclude each other")):
        said = hostcore(command, *given)
        assert said.code == 2
        assert told in said.err


def test_a_checkpoint_to_resume_is_an_argument_or_an_option_but_not_both(hostcore: Callable) -> None:
    missing = hostcore("resume", "--checkpoint", "no/step-000002.json")
    assert missing.err == hostcore("resume", "no/step-000002.json").err
    run = hostcore("resume", "--checkpoint", "a-run")
    for said, told in (
        (missing, "no/step-000002.json"),
        (run, "a-run"),
        (hostcore("resume"), "Missing argument"),
        (hostcore("resume", "a", "--checkpoint", "step-000002.json"), "exclude each other"),
    ):
        assert said.code == 2
        assert told in said.err


@pytest.mark.parametrize("command", [["run", "job.json"], ["resume", "a"]], ids=["run", "resume"])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--event-log", "-", "--json"], "--event-log - and --json exclude each other"),
        (["--event-log", "-", "--detach"], "--event-log - is not for a run that --detach starts"),
        (["--event-log", "f", "--server", "http://localhost:1"], "--event-log and --server exclude each other"),
        (["--manifest", "f", "--server", "http://localhost:1"], "--manifest and --server exclude each other"),
        (["--log-dir", "f", "--server", "http://localhost:1"], "--runs-dir and --server exclude each other"),
        (["--in-process", "--detach"], "--in-process and --detach exclude each other"),
        (["--event-format", "trn"], "--event-format says how --event-log is written"),
        (["--event-log", ""], "--event-log takes a file"),
        (["--log-dir", "job.json"], "is a file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_do_not_go_together_are_one_error(
    hostcore: Callable, command: list[str], options: list[str], told: str
) -> None:
    said = hostcore(*command, *options)
    assert said.code == 2
    assert told in " ".join(said.err.split())


def test_standard_output_is_not_for_the_events_of_a_run_that_a_launcher_starts(
    hostcore: Callable, tmp_path: Path
) -> None:
    job = '{"trainer": "a:B", "max_steps": 1, "launcher": {"use": "slurm"}}'
    (tmp_path / "job.json").write_text(job)
    said = hostcore("run", "job.json", "--event-log", "-")
    assert said.code == 2
    assert "--event-log - is not for a run that the launcher slurm starts" in said.err


TRAINER = """
import attrs

class Trainer:
    @attrs.frozen(kw_only=True)
    class Hyperparams:
        lr: float = 0.1

    def setup(self): ...
    def configure(self): ...
    def prepare_batch(self, raw_batch): ...
    def train_step(self, prepared_batch): ...
    def state_dict(self, state): ...
    def load_state_dict(self, state, payload): ...
"""


@pytest.mark.parametrize(
    ("command", "options", "pointer", "origin"),
    [
        ("validate", ["--set", "hyperparams.lr=abc"], "/hyperparams/lr", "--set hyperparams.lr"),
        ("validate", ["--profile", "fast"], "/hyperparams/lr", "--profile fast"),
        ("run", ["--devices", "cuda:99"], "/devices", "--devices"),
        ("run", ["--set", 'reporters=[{"use": "jsonl", "path": 3}]'], "/reporters/0/path", "--set reporters"),
        ("run", ["--set", 'reporters=[{"use": "webhook"}]'], "/reporters/0/url", "--set reporters"),
        ("run", ["--set", 'uploaders=[{"$secret": "env:NONE"}]'], "/uploaders/0", "--set uploaders"),
        ("run", ["--set", "inputs.base=nothing"], "/inputs/base", "--set inputs.base"),
        ("validate", [], "/hyperparams/lr", "job.json"),
    ],
    ids=str,
)
def test_an_error_that_a_plugin_finds_names_the_option_too(
    hostcore: Callable, tmp_path: Path, command: str, options: list[str], pointer: str, origin: str
) -> None:
    (tmp_path / "mine.py").write_text(TRAINER)
    job = {"trainer": "mine:Trainer", "max_steps": 1, "profiles": {"fast": {"hyperparams": {"lr": "x"}}}}
    if not options:
        job["hyperparams"] = {"lr": "x"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    here = ["--in-process"] if command == "run" else []
    (error,) = hostcore(command, "job.json", *here, *options, "--json").json["errors"]
    assert (error["pointer"], error["file"]) == (pointer, origin)
    assert list(tmp_path.glob("runs/*")) == []


def test_validate_shows_the_layer_that_touched_each_key_last(hostcore: Callable, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TRAINER)
    (tmp_path / "base.json").write_text('{"trainer": "mine:Trainer", "labels": {"a": "1"}, "hyperparams": {}}')
    job = {"include": "base.json", "labels": {"b": "2"}, "profiles": {"fast": {"max_steps": 2, "seed": 3}}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    options = ("job.json", "--profile", "fast", "--set", "seed=4")
    assert hostcore("validate", *options, "--json").json["origins"] == {
        "/trainer": "base.json",
        "/hyperparams": "base.json",
        "/labels": "job.json",
        "/profiles": "job.json",
        "/max_steps": "--profile fast",
        "/seed": "--set seed",
    }
    assert "files base.json, job.json" in " ".join(hostcore("validate", *options).out.split())


ADDED = """
import click
from hostcore.cli.job_options import AddedOptions

def changes(given):
    return {f"/labels/colour={given['colour']}": "--colour"} if given["colour"] else {}

OPTIONS = AddedOptions(options=[click.Option(["--colour"], help="Of the run.")], changes=changes)
"""


class TestOptionsOfAnotherDistribution:
    @staticmethod
    def install(site: Any, module: str, source: str) -> None:
        entry_points = {"hostcore.job_options": {"colours": f"{module}:OPTIONS"}}
        site.install("colours", modules={f"{module}.py": source}, entry_points=entry_points)

    def test_change_the_job_and_are_named_by_errors(self, hostcore: Callable, site_here: Any) -> None:
        self.install(site_here, "colours_one", ADDED)
        assert "Of the run." in hostcore("validate", "--help").out
        (error,) = hostcore("validate", "job.json", "--colour", "1", "--json").json["errors"]
        assert (error["pointer"], error["file"]) == ("/labels/colour", "--colour")
        assert "labels" not in str(hostcore("validate", "job.json", "--json").json)

    def test_are_looked_for_when_an_option_is_unknown(self, hostcore: Callable, site_here: Any) -> None:
        self.install(site_here, "colours_two", "raise RuntimeError('colour blind')")
        assert "colour blind" not in hostcore("validate", "job.json", "--set", "seed=x").err
        assert "'colours' of colours 1.0 is broken: RuntimeError: colour blind" in hostcore("validate", "--help").out
        said = hostcore("validate", "job.json", "--colour", "red")
        assert said.code == 2
        assert "'colours' of colours 1.0 is broken: RuntimeError: colour blind" in said.err


def test_an_option_that_is_not_installed_says_what_installs_it(
    hostcore: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hostcore.plugins.installed import Discovered

    monkeypatch.setattr("hostcore.plugins.installed.discover", lambda: Discovered(refs=()))
    said = hostcore("validate", "job.json", "--chaos", "kill@step=1")
    assert said.code == 2
    assert f"No such option '--chaos'. `{install_command('chaos')}` brings it." in said.err
