"""Kills at random instants: no acknowledged checkpoint is lost, none is unloadable, and the run ends as if unharmed."""

import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import attrs
import pytest
from cold import Cold, is_gone
from ledger import Ledger, job
from nursery import HERE, Nursery, nursery
from waiting import wait_until

KILLS = 200
COLD_KILLS = 20
#: Beside each other; there are two cores.
LANES = 2
#: Of one run, at most: on a machine that has become slow, none would ever come to its end.
KILLS_OF_A_RUN = 20
STEPS = 12
#: Makes a state of a megabyte, so that there is time to be killed while it is written.
WIDTH = 16_000


def long_job(run_id: str, **keys: Any) -> dict[str, Any]:
    return job(run_id, max_steps=STEPS, hyperparams={"width": WIDTH}, **keys)


@attrs.define
class Unharmed:
    """The run that nobody has killed."""

    losses: Mapping[int, float]
    weights: Mapping[str, bytes]
    #: How long it takes with a checkpoint at each step, from the fork; longer, once a part of it has taken longer.
    seconds: float


@pytest.fixture(scope="module")
def nurseries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Nursery]]:
    """One for each lane."""
    folder = tmp_path_factory.mktemp("killed")
    shutil.copy(HERE / "fault_trainer.py", folder)
    (folder / "runs").mkdir()
    with nursery(folder / "runs") as one, nursery(folder / "runs") as other:
        yield [one, other]


@pytest.fixture(scope="module")
def unharmed(nurseries: list[Nursery]) -> Unharmed:
    lane = nurseries[0]
    assert lane.run(long_job("warm"))[0] == 0
    code, seconds = lane.run(long_job("unharmed", checkpoint_every=1))
    assert code == 0, lane.output("unharmed")
    ledger = Ledger(lane.runs_dir / "unharmed")
    ledger.check_digest()
    assert Ledger(lane.runs_dir / "warm").losses == ledger.losses
    return Unharmed(ledger.losses, ledger.weights, seconds)


def check_after_kill(ledger: Ledger, unharmed: Unharmed, *, keep: int) -> None:
    """What must hold at any moment."""
    ledger.check_checkpoints(keep=keep)
    told = ledger.told
    for event in told:
        if event["event"] == "metrics":
            assert event["metrics"]["error"] == unharmed.losses[event["step"]], f"another loss: {event}"
    # An attempt that has begun to train has cleared away what those before it had left. (What it is about to remove
    # itself has the number of the attempt that wrote it.)
    training = max((event["attempt"] for event in told if event["event"] == "run_started"), default=0)
    left = [(name, re.search(r"attempt-(\d+)\.(tmp|old)$", name)) for name in ledger.hidden]
    assert [name for name, of in left if of and int(of[1]) < training] == []


def check_at_the_end(ledger: Ledger, unharmed: Unharmed, *, keep: int) -> None:
    """What must hold when the run has come to its end in spite of all."""
    check_after_kill(ledger, unharmed, keep=keep)
    assert ledger.result is not None
    assert (ledger.result["status"], ledger.result["step"]) == ("succeeded", STEPS)
    assert ledger.losses == unharmed.losses
    assert ledger.weights == unharmed.weights
    ledger.check_digest()
    ledger.check_numbers()
    assert ledger.hidden == []


def in_lanes(nurseries: list[Nursery], work: Callable[[Nursery, int], Counter[str]]) -> Counter[str]:
    """Do something in every lane at once; what they have counted."""
    with ThreadPoolExecutor(LANES) as threads:
        return sum(threads.map(work, nurseries, range(LANES)), Counter())


def test_forked_runs_survive_kills_at_random_instants(nurseries: list[Nursery], unharmed: Unharmed, seed: int) -> None:
    def work(lane: Nursery, number: int) -> Counter[str]:
        rng, counts = random.Random(f"{seed}-{number}"), Counter[str]()
        while (left := KILLS // LANES - counts["kills"]) > 0:
            at_most = min(left, KILLS_OF_A_RUN)
            counts += kill_until_it_ends(lane, f"forked-{number}-{counts['runs']}", rng, unharmed, at_most=at_most)
        return counts

    counts = in_lanes(nurseries, work)
    print(dict(counts))
    assert counts["kills"] >= KILLS
    assert counts["inside a commit"] > KILLS / 20


def kill_until_it_ends(
    lane: Nursery, run_id: str, rng: random.Random, unharmed: Unharmed, *, at_most: int
) -> Counter[str]:
    """Start a run again and again, and kill it each time at some instant, some times or until it comes to its end."""
    keep, counts = rng.choice([1, 2, 3, 100]), Counter[str](runs=1)
    keys = {"checkpoint_every": rng.randint(1, 3), "keep_checkpoints": keep}
    ledger = Ledger(lane.runs_dir / run_id)
    code = -signal.SIGKILL
    while counts["kills"] < at_most:
        code = lane.run_and_kill(long_job(run_id, **keys), rng.uniform(0, unharmed.seconds))
        if code == 0:
            break
        assert code == -signal.SIGKILL, lane.output(run_id)
        counts["kills"] += 1
        counts["inside a commit"] += any("attempt-" in name for name in ledger.hidden)
        check_after_kill(ledger, unharmed, keep=keep)
    if code != 0:
        code, seconds = lane.run(long_job(run_id, **keys))
        assert code == 0, lane.output(run_id)
        unharmed.seconds = max(unharmed.seconds, seconds)
    check_at_the_end(ledger, unharmed, keep=keep)
    counts["acknowledged"] += len(ledger.acknowledged)
    shutil.rmtree(ledger.path)
    return counts


def test_cold_runs_survive_kills_of_their_supervisors_and_workers(
    nurseries: list[Nursery], unharmed: Unharmed, seed: int
) -> None:
    """The installed command, in processes of its own, killed at any instant from its start on."""

    def work(lane: Nursery, number: int) -> Counter[str]:
        rng, counts = random.Random(f"{seed}-{number}"), Counter[str]()
        started = time.monotonic()
        assert Cold.start(lane.runs_dir, long_job(f"cold-{number}", checkpoint_every=1)).process.wait() == 0
        life = time.monotonic() - started
        while (left := COLD_KILLS // LANES - counts["kills"]) > 0:
            counts += kill_cold(lane, f"cold-{number}-{counts['runs']}", rng, unharmed, life, at_most=left)
        return counts

    counts = in_lanes(nurseries, work)
    print(dict(counts))
    assert counts["kills"] >= COLD_KILLS
    assert min(counts["supervisors"], counts["workers"]) > 0


def kill_cold(
    lane: Nursery, run_id: str, rng: random.Random, unharmed: Unharmed, life: float, *, at_most: int
) -> Counter[str]:
    """Start a run again and again, and kill its supervisor or its worker, some times or until it comes to its end."""
    counts, ledger, victims = Counter[str](runs=1), Ledger(lane.runs_dir / run_id), rng.randint(0, 1)
    keys, code = {"checkpoint_every": 1, "keep_checkpoints": 3}, -1
    while code != 0 and counts["kills"] < at_most:
        cold = Cold.start(lane.runs_dir, long_job(run_id, **keys))
        time.sleep(rng.uniform(0, life))
        workers = cold.workers
        victim = "workers" if workers and (counts["kills"] + victims) % 2 else "supervisors"
        for pid in workers if victim == "workers" else [cold.process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        code = cold.process.wait()
        wait_until(lambda: all(map(is_gone, workers)), "the worker to end")  # noqa: B023
        if code != 0:
            assert code == (1 if victim == "workers" else -signal.SIGKILL), lane.output(run_id)
            counts.update({"kills": 1, victim: 1})
            check_after_kill(ledger, unharmed, keep=3)
    assert lane.run(long_job(run_id, **keys))[0] == 0, lane.output(run_id)
    check_at_the_end(ledger, unharmed, keep=3)
    counts["acknowledged"] += len(ledger.acknowledged)
    return counts
