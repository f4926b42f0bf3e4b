"""Stops and failures of one rank: the others neither wait for it nor go on without it."""

import zlib
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


def test_a_signal_that_one_rank_gets_stops_all_after_the_same_step(run: Run) -> None:
    keys = {"max_steps": 5000, "callbacks": ["rank_trainer:Told"], "metric_every": 1000, "prove_resume": 2}
    outcome = run("signal", 2, hyperparams={"does": "sigterm:1:3"}, **keys)

    assert outcome.codes == [0, 0], outcome.output()
    steps = {outcome.notes(rank)["step"] for rank in (0, 1)}
    assert len(steps) == 1
    assert 3 <= min(steps) < 3 + 32 + 2
    assert [outcome.end(rank)["event"] for rank in (0, 1)] == ["run_preempted", "run_preempted"]
    assert outcome.notes(0)["stops"] == outcome.notes(1)["stops"]
    assert [one["requested_by"] for one in outcome.notes(0)["stops"]] == ["signal:SIGTERM"]
    assert [one for one in outcome.told(0) if one[0] == "stop"] == [one for one in outcome.told(1) if one[0] == "stop"]
    assert outcome.host(min(steps))["progress"]["step"] == min(steps)
    probed = [one["step"] - min(steps) for one in outcome.events(name="resume_probe")]
    assert probed == [1, 2], "both ranks have trained these, and stand where they stood"


@pytest.mark.parametrize("who", ["1", "*"])
def test_a_component_of_one_rank_or_of_all_stops_the_run_once(run: Run, who: str) -> None:
    callbacks = [{"use": "rank_trainer:Told", "does": f"stop:{who}:2"}]
    outcome = run(f"stop-{ord(who)}", 2, max_steps=5000, metric_every=1000, callbacks=callbacks)

    assert outcome.codes == [0, 0], outcome.output()
    (stop,) = outcome.events(name="stop_requested")
    assert stop["reason"] == ("enough" if who == "*" else "enough, says rank 1")
    assert outcome.end()["event"] == "run_succeeded"
    assert outcome.notes(0)["step"] == outcome.notes(1)["step"]


def test_what_is_asked_for_after_a_validation_stops_at_that_step_on_any_number_of_ranks(run: Run) -> None:
    callbacks = [{"use": "rank_trainer:Told", "does": "stop-validation:*:4"}]
    keys = {"max_steps": 100, "validate_every": 2, "validation": {}, "callbacks": callbacks}
    assert {run(f"early-{ranks}", ranks, **keys).end()["step"] for ranks in (1, 2)} == {4}


def test_a_backoff_ends_on_all_ranks_when_one_is_asked_to_stop(run: Run) -> None:
    """Rank 0 gets the signal in step 2, after which both want to wait for ten minutes."""
    outcome = run("backoff", 2, max_steps=9, hyperparams={"backoff": 600, "does": "sigterm:0:2"})
    assert outcome.codes == [0, 0], outcome.output()
    assert [outcome.end(rank)["step"] for rank in (0, 1)] == [2, 2]


def test_an_exception_on_one_rank_ends_the_others_who_say_that_it_is_not_theirs(run: Run) -> None:
    outcome = run("raise", 3, max_steps=9, hyperparams={"does": "raise:1:3"})
    assert (outcome.codes, outcome.hung) == ([1, 1, 1], []), outcome.output()
    assert outcome.error(1)["type"] == "ValueError"
    assert "the loss has exploded" in outcome.error(1)["traceback"]
    for rank in (0, 2):
        assert outcome.error(rank)["type"] == "DistributedError"
        assert outcome.error(rank)["message"].startswith("a collective of the ranks broke off: ")


def test_a_rank_that_dies_ends_the_others(run: Run) -> None:
    outcome = run("die", 2, max_steps=9, hyperparams={"does": "die:0:3"})
    assert (outcome.codes, outcome.hung) == ([7, 1], []), outcome.output()
    assert outcome.error(1)["type"] == "DistributedError"


def test_ranks_that_ask_for_different_things_are_told_so(run: Run) -> None:
    keys = {"max_steps": 8, "validate_every": 4, "checkpoint_every": 2, "validation": {}}
    callbacks = [{"use": "rank_trainer:Told", "does": "restore:1:4"}]
    outcome = run("disagree", 2, callbacks=callbacks, **keys)
    assert (outcome.codes, outcome.hung) == ([1, 1], []), outcome.output()
    for rank in (0, 1):
        assert outcome.error(rank)["type"] == "RanksDisagree"
        assert "rank 1 is at a meeting of step 4, go back to step 2" in outcome.error(rank)["message"]


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"max_steps": 8}, id="metrics alone"),
        pytest.param({"max_steps": 8, "validate_every": 2, "validation": {}}, id="validation"),
        pytest.param({"max_steps": 8, "checkpoint_every": 4}, id="checkpoint"),
        pytest.param({"max_steps": 4}, id="last step"),
        pytest.param({"max_steps": 8, "sample_every": 4, "samples": [{"prompt": "a"}]}, id="samples"),
        pytest.param(
            {"max_steps": 8, "metric_every": 3, "sample_every": 4, "samples": [{"prompt": "a"}]}, id="samples alone"
        ),
    ],
)
def test_a_cadence_step_that_one_rank_skips_is_an_error_and_recorded_by_none(run: Run, keys: dict[str, Any]) -> None:
    hyperparams = {"does": "skip:1:4", "strategy": "none"}
    outcome = run(f"skip-{zlib.crc32(repr(keys).encode())}", 2, hyperparams=hyperparams, **keys)
    assert (outcome.codes, outcome.hung) == ([1, 1], []), outcome.output()
    types = {outcome.error(rank)["type"] for rank in (0, 1)}
    assert "RanksDisagree" in types
    assert types <= {"RanksDisagree", "DistributedError"}  # the other one's, or its end, may be heard first
    assert set(outcome.losses()) <= {1, 2, 3}


def test_what_all_ranks_skip_or_want_recorded_is_no_error_and_what_one_alone_wants_is_one(run: Run) -> None:
    keys = {"max_steps": 6, "checkpoint_every": 4, "hyperparams": {"does": "skip:*:4", "backoff": 0.2}}
    outcome = run("skip-all", 2, **keys)
    assert outcome.codes == [0, 0], outcome.output()
    assert list(outcome.losses()) == [1, 2, 3, 5, 6]
    for who, codes, losses in (("*", [0, 0], [3, 4, 6]), ("1", [1, 1], [])):
        hyperparams = {"does": f"record:{who}:3", "strategy": "none"}
        outcome = run(f"record-{ord(who)}", 2, max_steps=6, metric_every=4, hyperparams=hyperparams)
        assert (outcome.codes, outcome.hung) == (codes, []), outcome.output()
        assert list(outcome.losses()) == losses
    assert "RanksDisagree" in {outcome.error(rank)["type"] for rank in (0, 1)}


@pytest.mark.parametrize("asks", ["best", "restore-step"])
@pytest.mark.parametrize(
    ("step", "keys"),
    [
        pytest.param(3, {}, id="plain step"),
        pytest.param(4, {}, id="checkpoint"),
        pytest.param(5, {"validate_every": 5, "validation": {}}, id="validation"),
        pytest.param(8, {}, id="last step"),
    ],
)
def test_what_one_rank_alone_asks_for_is_an_error_that_says_so(
    run: Run, asks: str, step: int, keys: dict[str, Any]
) -> None:
    keys = {"max_steps": 8, "checkpoint_every": 4, **keys, "hyperparams": {"strategy": "none"}}
    callbacks = [{"use": "rank_trainer:Told", "does": f"{asks}:1:{step}"}]
    outcome = run(f"lone-{asks}-{step}", 2, callbacks=callbacks, **keys)
    assert (outcome.codes, outcome.hung) == ([1, 1], []), outcome.output()
    what = "train/loss 0.5 is the best" if asks == "best" else "go back to step 1"
    for rank in (0, 1):
        assert outcome.error(rank)["type"] == "RanksDisagree"
        assert f"rank 1 is at a meeting of step {step}, {what}" in outcome.error(rank)["message"]


def test_all_ranks_go_back_to_a_checkpoint_together(run: Run) -> None:
    keys = {"max_steps": 6, "validate_every": 4, "checkpoint_every": 2, "validation": {}}
    callbacks = [{"use": "rank_trainer:Told", "does": "restore:*:4"}]
    outcome = run("back", 2, callbacks=callbacks, **keys)
    assert outcome.codes == [0, 0], outcome.output()
    (restored,) = [one for rank in (0, 1) for one in outcome.events(rank, "trainer_restored")]
    assert (restored["step"], restored["restored_step"]) == (4, 2)
    assert outcome.notes(0)["weights"] == outcome.notes(1)["weights"]
