"""A sweep whose driver and trials are killed again and again has the trials, and the best, of one in peace."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from thoroughness import SEED, instants, points

KILLS = points(6, long=30)
TRIALS = points(6, long=16)
#: Between two kills: a driver takes a second to begin, a trial two or three.
LONGEST_SECONDS = 4.0


def sweep_of(place: Any) -> None:
    place.job(hyperparams={"seconds": 0.03}, max_steps=30)
    place.sweep(
        sampler={"use": "tpe", "startup_trials": 3},
        pruner={"use": "asha", "min_steps": 4},
        limits={"trials": TRIALS, "parallel": 2, "resumes": KILLS},
    )


def processes_in(folder: Path) -> list[int]:
    """The processes that work in a folder: supervisors and workers of trials."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "cwd").readlink() == folder and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def kill(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def swept_under_fire(place: Any, rng: random.Random, log: list[str]) -> None:
    """Drive the sweep to its end, while processes are killed at random instants: the driver, or one of a trial."""
    moments, left = instants(rng), KILLS
    while True:
        driver = place.start("sweep", "sweep.json")
        while left and driver.poll() is None:
            time.sleep(next(moments) * LONGEST_SECONDS)
            others = [pid for pid in processes_in(place.path) if pid != driver.pid]
            if rng.random() < 0.5 or not others:
                left -= kill(driver.pid)
                log.append("the driver was killed")
                driver.wait()
            else:
                left -= kill(rng.choice(others))
                log.append("a process of a trial was killed")
        code = driver.wait(600)
        if code == 0:
            return
        # What checked the first job may have been killed, too: then nothing has begun.
        assert code == -signal.SIGKILL or not (place.path / "sweeps").exists()


@pytest.fixture(scope="module")
def undisturbed(make_place: Any, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """What becomes of the trials in peace."""
    place = make_place.make(tmp_path_factory.mktemp("peace") / "place")
    sweep_of(place)
    said = place.hostcore("sweep", "sweep.json")
    assert said.code == 0, said.err
    trials: list[tuple[Any, ...]] = place.trials()
    assert {trial[2] for trial in trials} == {"complete", "pruned"}
    return trials


def test_the_trials_and_the_best_are_those_of_a_sweep_in_peace(
    undisturbed: list[tuple[Any, ...]], place: Any, seed: int
) -> None:
    sweep_of(place)
    log: list[str] = []
    swept_under_fire(place, random.Random(SEED), log)
    print("\n".join(log))
    assert place.trials() == undisturbed
    assert place.run_ids() == [f"walk-{number:04d}" for number in range(TRIALS)]
    for run_id in place.run_ids():
        assert_one_history(place.path / "runs" / run_id)


def assert_one_history(run: Path) -> None:
    """See that no two attempts of a run went on at once, and that what was done twice came to the same."""
    events = [orjson.loads(line) for line in (run / "logs" / "events.jsonl").read_bytes().splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    attempts = [event["attempt"] for event in events]
    assert attempts == sorted(attempts)
    losses: dict[int, float] = {}
    for event in events:
        if event["event"] == "metrics":
            assert losses.setdefault(event["step"], event["metrics"]["train/loss"]) == event["metrics"]["train/loss"]
