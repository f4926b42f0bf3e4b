"""Sweeps that are paused, raised, cancelled, refused: each goes on where it was."""

import signal
from typing import Any

import orjson
from waiting import wait_until


def test_more_trials_go_on_where_it_was(place: Any) -> None:
    place.sweep(limits={"trials": 1})
    assert place.hostcore("sweep", "sweep.json").code == 0
    before = place.trials()
    assert "2 trials in all" in place.hostcore("sweep", "add-trials", "walk", "1").out
    assert place.status()["status"] == "paused"
    assert place.hostcore("sweep", "run", "walk").code == 0
    after = place.trials()
    assert after[:1] == before
    assert len(after) == 2
    assert place.status()["status"] == "finished"


def events(place: Any, run_id: str) -> list[Any]:
    log = place.path / "runs" / run_id / "logs" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
    return [orjson.loads(line) for line in lines if line.endswith(b"\n")]


def test_a_sweep_that_is_cancelled_goes_on_exactly_where_each_trial_was(place: Any) -> None:
    hurry = place.path / "hurry"
    place.job(hyperparams={"seconds": 0.02, "until": str(hurry)}, max_steps=600)
    place.sweep(limits={"trials": 2, "parallel": 2})
    driver = place.start("sweep", "sweep.json")
    wait_until(lambda: len([e for e in events(place, "walk-0000") if e["event"] == "metrics"]) > 5, "some steps")
    wait_until(lambda: len([e for e in events(place, "walk-0001") if e["event"] == "metrics"]) > 5, "some steps")
    assert place.hostcore("sweep", "cancel", "walk", "--reason", "lunch").code == 0
    assert driver.wait(300) == 130
    assert {row["state"] for row in place.status()["trials"]} == {"paused"}
    stopped = events(place, "walk-0000")[-1]
    assert (stopped["event"], stopped["reason"]) == ("run_cancelled", "the sweep was stopped: lunch")

    hurry.touch()
    assert place.hostcore("sweep", "run", "walk").code == 0
    assert {row["state"] for row in place.status()["trials"]} == {"complete"}
    for run_id in place.run_ids():
        steps = [event["step"] for event in events(place, run_id) if event["event"] == "metrics"]
        assert steps == list(range(1, 601)), "a step was repeated or left out"


def test_a_sweep_has_one_driver_and_ctrl_c_pauses_it(place: Any) -> None:
    place.job(hyperparams={"until": "never"}, max_steps=600)
    place.sweep(limits={"trials": 1})
    driver = place.start("sweep", "sweep.json")
    wait_until(lambda: [e for e in events(place, "walk-0000") if e["event"] == "metrics"], "a step")
    said = place.hostcore("sweep", "sweep.json")
    assert (said.code, "another process drives this sweep" in said.err) == (2, True)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(300) == 130
    assert (place.status()["status"], place.status()["reason"]) == ("paused", "interrupted by the user")
    assert events(place, "walk-0000")[-1]["event"] == "run_cancelled"


def test_a_trial_that_raises_has_failed_and_the_others_go_on(place: Any) -> None:
    space = {"/hyperparams/fail_at": {"choice": [3, 0]}}
    place.sweep(space=space, sampler="grid", limits={"parallel": 2})
    assert place.hostcore("sweep", "sweep.json").code == 0
    first, second = place.status()["trials"]
    assert (first["state"], first["reason"]) == ("failed", "failed: ValueError: the loss has exploded")
    assert second["state"] == "complete"
    assert place.status()["best"] == [1]


def test_failures_end_a_sweep_that_cannot_succeed(place: Any) -> None:
    place.job(hyperparams={"fail_at": 1})
    place.sweep(limits={"trials": 50, "failures": 2})
    said = place.hostcore("sweep", "sweep.json")
    assert said.code == 1
    assert len(place.status()["trials"]) == 2
    assert "2 trials have failed; trial 0: failed: ValueError: the loss has exploded" in said.err


def test_limits_of_steps_and_hours_end_a_sweep_that_goes_on_when_they_are_raised(place: Any) -> None:
    place.sweep(limits={"trials": 3, "steps": 20})
    assert place.hostcore("sweep", "sweep.json").code == 0
    assert (len(place.status()["trials"]), place.status()["reason"]) == (1, "20 of 20 steps are done")
    place.sweep(limits={"trials": 3, "steps": 40, "hours": 1e-9})
    assert place.hostcore("sweep", "sweep.json").code == 75
    assert (len(place.status()["trials"]), place.status()["reason"]) == (1, "1e-09 hours are over")
    place.sweep(limits={"trials": 3, "steps": 40})
    assert place.hostcore("sweep", "sweep.json").code == 0
    assert [row["state"] for row in place.status()["trials"]] == ["complete"] * 2


def test_a_run_of_a_trials_name_that_is_not_the_sweeps_is_left_alone(place: Any) -> None:
    place.job(run_id="walk-0000", max_steps=2)
    assert place.hostcore("run", "job.json").code == 0
    place.job()
    place.sweep(limits={"trials": 1})
    said = place.hostcore("sweep", "sweep.json")
    assert (said.code, place.status()["trials"]) == (2, [])
    assert "there is a run walk-0000 already, which is not of this sweep" in said.err


def test_trials_that_begin_from_a_checkpoint_go_on_after_a_pause(place: Any) -> None:
    place.job(run_id="base", max_steps=5)
    assert place.hostcore("run", "job.json").code == 0
    checkpoint = str(place.path / "runs" / "base" / "checkpoints" / "step-000005.json")
    hurry = place.path / "hurry"
    wishes = {"seconds": 0.02, "until": str(hurry)}
    place.job(hyperparams=wishes, max_steps=600, resume_from_checkpoint=checkpoint)
    place.sweep(limits={"trials": 1})
    driver = place.start("sweep", "sweep.json")
    wait_until(lambda: len([e for e in events(place, "walk-0000") if e["event"] == "metrics"]) > 3, "some steps")
    driver.send_signal(signal.SIGINT)
    assert driver.wait(300) == 130
    hurry.touch()
    assert place.hostcore("sweep", "sweep.json").code == 0
    steps = [event["step"] for event in events(place, "walk-0000") if event["event"] == "metrics"]
    assert steps == list(range(6, 601))
