"""Kills at random instants: no acknowledged checkpoint is lost, none is unloadable, and the run ends as if unharmed."""

import itertools
import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from fork_server import hostcore
from ledger import Ledger, job
from started import Started, cold, is_gone
from thoroughness import IS_LONG, instants, points
from waiting import wait_until

HERE = Path(__file__).parent
#: Of runs in one process.
KILLS = points(12, long=200)
#: Of runs with a worker. The long suite starts new interpreters, and kills them while they import, too.
KILLS_OF_PROCESSES = points(4, long=20)
START = cold if IS_LONG else hostcore
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
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    shutil.copy(HERE / "fault_trainer.py", folder)
    (folder / "runs").mkdir()
    return folder / "runs"


def in_one_process(runs_dir: Path, of: Mapping[str, Any]) -> Started:
    return Started.start(runs_dir, of, "--in-process")


@pytest.fixture(scope="module")
def unharmed(runs_dir: Path) -> Unharmed:
    assert in_one_process(runs_dir, long_job("warm")).wait() == 0
    started = time.monotonic()
    whole = in_one_process(runs_dir, long_job("unharmed", checkpoint_every=1))
    assert whole.wait() == 0, whole.printed
    seconds = time.monotonic() - started
    ledger = Ledger(runs_dir / "unharmed")
    ledger.check_digest()
    assert Ledger(runs_dir / "warm").losses == ledger.losses
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


def test_runs_survive_kills_at_random_instants(runs_dir: Path, unharmed: Unharmed, seed: int) -> None:
    rng, counts = random.Random(seed), Counter[str]()
    when = instants(rng)
    while (left := KILLS - counts["kills"]) > 0 or counts["inside a commit"] <= KILLS / 20:
        assert left > -4 * KILLS, f"hardly any kill hits a commit: {counts}"
        at_most = min(max(left, 1), KILLS_OF_A_RUN)
        counts += kill_until_it_ends(runs_dir, f"one-{counts['runs']}", rng, when, unharmed, at_most=at_most)
    print(dict(counts))


def kill_until_it_ends(
    runs_dir: Path, run_id: str, rng: random.Random, when: Iterator[float], unharmed: Unharmed, *, at_most: int
) -> Counter[str]:
    """Start a run again and again, and kill it each time at some instant, some times or until it comes to its end."""
    keep, counts = rng.choice([1, 2, 3, 100]), Counter[str](runs=1)
    of = long_job(run_id, checkpoint_every=rng.randint(1, 3), keep_checkpoints=keep)
    ledger = Ledger(runs_dir / run_id)
    code = -signal.SIGKILL
    while counts["kills"] < at_most:
        left = set(ledger.hidden)
        is_committing = lambda: any("attempt-" in name for name in {*ledger.hidden} - left)  # noqa: B023, E731
        started = in_one_process(runs_dir, of)
        # One of four is to hit a commit, which is short on a quick disk.
        is_time = is_committing if counts["kills"] % 4 == 3 else lambda: True
        code = started.kill_after(next(when) * unharmed.seconds, condition=is_time)
        if code == 0:
            break
        assert code == -signal.SIGKILL, started.printed
        counts["kills"] += 1
        counts["inside a commit"] += is_committing()
        check_after_kill(ledger, unharmed, keep=keep)
    if code != 0:
        began = time.monotonic()
        last = in_one_process(runs_dir, of)
        assert last.wait() == 0, last.printed
        unharmed.seconds = max(unharmed.seconds, time.monotonic() - began)
    check_at_the_end(ledger, unharmed, keep=keep)
    counts["acknowledged"] += len(ledger.acknowledged)
    shutil.rmtree(ledger.path)
    return counts


def test_runs_survive_kills_of_their_supervisors_and_workers(runs_dir: Path, unharmed: Unharmed, seed: int) -> None:
    """The command and its worker, killed at any instant from the command's start on."""
    rng, counts = random.Random(seed), Counter[str]()
    victims, when = itertools.cycle(["supervisors", "workers"]), instants(rng)
    began = time.monotonic()
    assert Started.start(runs_dir, long_job("two", checkpoint_every=1), start=START).wait() == 0
    life = time.monotonic() - began
    while (left := KILLS_OF_PROCESSES - counts["kills"]) > 0 or not counts["workers"] or not counts["supervisors"]:
        assert left > -4 * KILLS_OF_PROCESSES, f"one kind of process is never killed: {counts}"
        counts += kill_processes(
            runs_dir, f"two-{counts['runs']}", victims, (at * life for at in when), unharmed, at_most=max(left, 1)
        )
    print(dict(counts))


def kill_processes(
    runs_dir: Path,
    run_id: str,
    victims: Iterator[str],
    seconds: Iterator[float],
    unharmed: Unharmed,
    *,
    at_most: int,
) -> Counter[str]:
    """Start a run again and again, and kill its supervisor or its worker, some times or until it comes to its end."""
    counts, ledger = Counter[str](runs=1), Ledger(runs_dir / run_id)
    of, code = long_job(run_id, checkpoint_every=1, keep_checkpoints=3), -1
    while code != 0 and counts["kills"] < at_most:
        started = Started.start(runs_dir, of, start=START)
        time.sleep(next(seconds))
        workers = started.workers
        victim = next(victims) if workers else "supervisors"
        for pid in workers if victim == "workers" else [started.process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        code = started.wait()
        wait_until(lambda: all(map(is_gone, workers)), "the worker to end")  # noqa: B023
        if code != 0:
            assert code == (1 if victim == "workers" else -signal.SIGKILL), started.printed
            counts.update({"kills": 1, victim: 1})
            check_after_kill(ledger, unharmed, keep=3)
    last = in_one_process(runs_dir, of)
    assert last.wait() == 0, last.printed
    check_at_the_end(ledger, unharmed, keep=3)
    counts["acknowledged"] += len(ledger.acknowledged)
    return counts
