"""``hostcore debug``: a step again, and proof that it is the step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_a_replayed_step_is_the_recorded_one_and_the_run_is_only_read(
    bench: Any, plain: Path, content: Callable[[Path], Any]
) -> None:
    before = content(plain)
    found = bench.json("debug", "plain", "--step", "33")
    assert found["replayed"] == {
        "from": 30, "steps": 3, "compared": 3, "equal": True, "first_different": None, "causes": [],
    }  # fmt: skip
    assert found["metrics"].keys() == {"train/loss"}
    assert found["rows"] == bench.json("rows", "plain", "--step", "33")["rows"]
    assert found["gradients"].keys() == found["updates"].keys() == {"model.0", "model.3"}
    assert all(one > 0 for one in found["gradients"].values())
    assert content(plain) == before


def test_a_run_without_an_earlier_checkpoint_is_replayed_from_its_beginning(bench: Any, plain: Path) -> None:
    assert plain.is_dir()
    found = bench.json("debug", "plain", "--step", "2", "--until", "4")
    assert (found["replayed"]["from"], found["replayed"]["steps"], found["replayed"]["equal"]) == (0, 4, True)
    assert [one["step"] for one in found["steps"]] == [2, 3, 4]


def test_what_components_note_for_the_next_attempt_is_there(bench: Any) -> None:
    bench.run("noted", callbacks=["csv-metrics", "debug_trainer:Noting"], max_steps=12)
    assert bench.json("debug", "noted", "--step", "12")["replayed"]["equal"]


def test_a_run_without_rows_is_replayed_and_spikes_without_its_data_are_listed(bench: Any) -> None:
    bench.data("lost.parquet", 64)
    bench.run("lost", "lost.parquet", max_steps=2)
    (bench.folder / "lost.parquet").unlink()
    assert bench(["debug", "lost", "--spikes"]).returncode == 0
    (error,) = bench.json("debug", "lost", "--step", "2", code=2)["errors"]
    assert "lost.parquet does not exist" in error["message"]
    bench.run("mock", dataset=None, mock_batches=None, trainer="debug_trainer:WithoutRows", max_steps=12)
    found = bench.json("debug", "mock", "--step", "12")
    assert (found["rows"], found["replayed"]["equal"]) == (None, True)
    (error,) = bench.json("rows", "mock", "--step", "12", code=2)["errors"]
    assert "trains on no rows" in error["message"]


def test_what_if_is_no_replay(bench: Any, plain: Path) -> None:
    assert plain.is_dir()
    as_it_was = bench.json("debug", "plain", "--step", "31")
    rows = as_it_was["rows"]
    without = [word for one in rows[:8] for word in ("--without-rows", f"train.parquet:{one['row']}")]
    found = bench.json("debug", "plain", "--step", "31", *without)
    assert found["what_if"]
    assert found["replayed"]["equal"] is None
    assert found["metrics"] != as_it_was["metrics"]
    found = bench.json("debug", "plain", "--step", "32", "--set", "hyperparams.fails_at=32", code=1)
    assert "the step fails" in found["error"]["message"]
    (error,) = bench.json("debug", "plain", "--step", "31", "--without-rows", "train.parquet:9999", code=2)["errors"]
    assert "has no row 9,999" in error["message"]


def test_an_unseeded_generator_is_found_out_with_the_step(bench: Any) -> None:
    bench.run("unseeded", hyperparams={"unseeded": True}, max_steps=12)
    found = bench.json("debug", "unseeded", "--step", "12", code=1)["replayed"]
    assert found["first_different"]["step"] == 11
    assert found["first_different"]["metric"] == "train/loss"
    shown = bench(["debug", "unseeded", "--step", "12"]).stdout
    assert "the replay DIFFERS from the run" in shown
    assert "depends on something unseeded" in shown


def test_the_step_that_failed_fails_again(bench: Any) -> None:
    bench.run("failed", hyperparams={"fails_at": 13}, code=1)
    found = bench.json("debug", "failed", "--step", "last", code=1)
    assert (found["step"], found["replayed"]["from"], found["replayed"]["equal"]) == (13, 10, True)
    assert "the step fails" in found["error"]["message"]
    assert len(found["rows"]) == 16


def test_a_job_cannot_use_the_callback_of_the_replay(bench: Any) -> None:
    callback = {"use": "step-debugger", "first": 1, "last": 1}
    bench.run("used", callbacks=[callback], code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "1", "--spikes"], "either --step N or --spikes"),
        (["--step", "3", "--until", "2"], "is before"),
        (["--step", "1", "--bisect-rows", "--until", "2"], "--bisect-rows goes with"),
        (["--step", "1", "--pdb", "--json"], "--json and a debugger"),
        (["--step", "1", "--pdb"], "needs a terminal"),
        (["--step", "41"], "has no step 41"),
        (["--step", "3", "--until", "999"], "has no step 999"),
        (["--step", "3", "--save", "runs"], "runs exists already"),
        (["--step", "3", "--rank", "1"], "no rank 1"),
        (["--spikes", "--metric", "x"], "recorded no 'x'"),
        (["--step", "5", "--bisect-rows"], "is no spike"),
    ],
)
def test_mistakes_are_one_error_each(bench: Any, plain: Path, arguments: list[str], message: str) -> None:
    ended = bench(["debug", str(plain), *arguments])
    assert ended.returncode == 2
    assert message in ended.stderr
