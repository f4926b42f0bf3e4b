"""How ``run`` and ``validate`` let people change a job, and what they say when it is done wrongly."""

from collections.abc import Callable
from pathlib import Path

import pytest


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


@pytest.mark.parametrize(("typed", "near"), [("--proflie", "--profile"), ("--wieghts", "--weights")])
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
