"""The callback ``replay-check``: the run is the same with it, and a bit that flips is found."""

import json
from pathlib import Path
from typing import Any

import pytest

RANKS = {"devices": ["cpu", "cpu"], "device": None}


def check(every: int = 2, **settings: Any) -> list[dict[str, Any]]:
    return [{"use": "replay-check", "every": every, **settings}]


def events(run: Path, name: str) -> list[Any]:
    found = map(json.loads, (run / "logs/events.jsonl").read_text().splitlines())
    return [one for one in found if one["event"] == name]


def warnings(run: Path) -> list[str]:
    return [one["message"] for one in events(run, "warning")]


@pytest.mark.parametrize("keys", [{"accumulate": 2}, RANKS], ids=["dropout and accumulation", "two ranks"])
def test_a_run_is_the_same_with_it(bench: Any, keys: Any) -> None:
    name = "ranks" if keys is RANKS else "one"
    bench.run(f"unchecked-{name}", max_steps=8, **keys)
    checked = bench.run(f"checked-{name}", max_steps=8, callbacks=check(1), **keys)
    assert bench.json("compare", f"unchecked-{name}", f"checked-{name}", "--bits")["equal"]
    assert warnings(checked) == []


def test_a_bit_that_flips_once_is_a_warning_and_the_weights_are_those_of_a_sound_machine(bench: Any) -> None:
    bench.run("sound", max_steps=8, **RANKS)
    (warning,) = warnings(bench.run("flipped", max_steps=8, callbacks=check(), hyperparams={"flips": 1}, **RANKS))
    assert "step 6 was computed 3 times" in warning
    assert "output of model.module.1, rank 1" in warning
    assert "replay-check" in warning
    assert bench.json("compare", "sound", "flipped", "--bits")["equal"]


@pytest.mark.parametrize(("settings", "times"), [({}, 3), ({"retry": False}, 2)], ids=["lasting", "not retried"])
def test_a_difference_ends_the_run(bench: Any, settings: Any, times: int) -> None:
    name = f"corrupt-{times}"
    keys = {"callbacks": check(**settings), "hyperparams": {"flips": times}}
    (failed,) = events(bench.run(name, max_steps=8, code=1, **keys), "run_failed")
    assert failed["error"]["type"] == "SilentCorruption"
    assert f"step 6 was computed {times} times from the same state, with {times} results" in failed["error"]["message"]
    assert "output of model.1, rank 0" in failed["error"]["message"]


def test_a_step_that_is_not_deterministic_is_found(bench: Any) -> None:
    run = bench.run("unseeded-check", max_steps=2, callbacks=check(), hyperparams={"unseeded": True}, code=1)
    (failed,) = events(run, "run_failed")
    assert "gradient of model.3" in failed["error"]["message"]


def test_what_cannot_be_made_again_is_refused(bench: Any) -> None:
    keys = {"dataset": None, "trainer": "debug_trainer:WithoutRows", "max_steps": 4}
    bench.run("refused", callbacks=check(), code=2, **keys)
    error = bench(["run", "refused.json"], fails=True).stderr
    assert "does not declare that this can be done" in error
    assert "Capabilities(repeatable=True)" in error


def test_steps_without_an_update_are_a_warning(bench: Any) -> None:
    keys = {"dataset": None, "trainer": "debug_trainer:WithoutOptimizer", "max_steps": 4}
    (warning,) = warnings(bench.run("without-update", callbacks=check(), **keys))
    assert "has compared nothing" in warning
