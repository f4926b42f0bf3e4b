"""Signals at random instants of a run's life, from the first moment of its process to the last.

What a signal leads to depends on when it comes:

=========================================  =====================================================================
before Python has come to ``run``          the signal's default: the process is killed by it. Python makes of
                                           SIGINT a KeyboardInterrupt: exit 130, or, before the first line of
                                           hostcore's that could hear it, a traceback of its own
before there is a run directory            exit 75 (SIGTERM, SIGUSR1) or 130 (SIGINT), and nothing is left
after that                                 the attempt ends: ``preempted``, 75, or ``cancelled``, 130
after the last step                        nothing: the run succeeds, exit 0
=========================================  =====================================================================
"""

import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
from cold import Cold, is_gone
from ledger import ENDS, Ledger, job
from nursery import HERE, Nursery, nursery

SIGNALS = 100
LANES = 2
STEPS = 12
#: Status, exit code and who has asked, by the signal.
MEANING = {
    signal.SIGTERM: ("preempted", 75, "signal:SIGTERM"),
    signal.SIGUSR1: ("preempted", 75, "signal:SIGUSR1"),
    signal.SIGINT: ("cancelled", 130, "user"),
}
#: The line of the command's script that calls the command.
COMMAND_CALLED = "sys.exit(main())"


def short_job(run_id: str) -> dict[str, object]:
    return job(run_id, max_steps=STEPS, checkpoint_every=2, hyperparams={"seconds": 0.03})


@attrs.define
class Lane:
    """What runs beside the other lanes."""

    nursery: Nursery
    #: A run that nobody has interrupted.
    unharmed: Ledger
    #: About how long one takes now, from the start of its process to the end.
    seconds: float

    @property
    def runs_dir(self) -> Path:
        return self.nursery.runs_dir


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Lane]]:
    def warm_up(made: Nursery) -> Lane:
        assert Cold.start(made.runs_dir, short_job("cold")).process.wait() == 0
        started = time.monotonic()
        assert Cold.start(made.runs_dir, short_job("unharmed")).process.wait() == 0
        return Lane(made, Ledger(made.runs_dir / "unharmed"), time.monotonic() - started)

    folders = [tmp_path_factory.mktemp("signalled") for _ in range(LANES)]
    for folder in folders:
        shutil.copy(HERE / "fault_trainer.py", folder)
        (folder / "runs").mkdir()
    with (
        nursery(folders[0] / "runs") as one,
        nursery(folders[1] / "runs") as other,
        ThreadPoolExecutor(LANES) as threads,
    ):
        yield list(threads.map(warm_up, (one, other)))


def test_a_signal_at_any_instant_leaves_one_honest_end_and_a_run_that_goes_on(lanes: list[Lane], seed: int) -> None:
    def work(number: int) -> Counter[str]:
        rng, counts = random.Random(f"{seed}-{number}"), Counter[str]()
        while counts.total() < SIGNALS / LANES:
            sent = list(MEANING)[counts.total() % len(MEANING)]
            if (end := send(lanes[number], f"run-{counts.total()}", sent, rng)) is not None:
                counts[end] += 1
        return counts

    with ThreadPoolExecutor(LANES) as threads:
        counts = sum(threads.map(work, range(LANES)), Counter[str]())
    print(dict(counts))
    assert counts.total() == SIGNALS
    assert counts["preempted"] > SIGNALS / 10
    assert counts["cancelled"] > SIGNALS / 20


def send(lane: Lane, run_id: str, sent: signal.Signals, rng: random.Random) -> str | None:
    """Start a run, send it a signal at some instant, check its end, and go on with it.

    :return: What it ended as; None if it had ended before.
    """
    cold, started, instant = (
        Cold.start(lane.runs_dir, short_job(run_id)),
        time.monotonic(),
        rng.uniform(0, lane.seconds),
    )
    with suppress(subprocess.TimeoutExpired):
        assert cold.process.wait(instant) == 0
        lane.seconds = time.monotonic() - started
        shutil.rmtree(lane.runs_dir / run_id)
        return None
    workers = cold.workers
    cold.process.send_signal(sent)
    code = cold.process.wait()
    output, ledger = lane.nursery.output(run_id), Ledger(lane.runs_dir / run_id)
    try:
        assert all(map(is_gone, workers)), "a worker has outlived its supervisor"
        if not ledger.path.exists():
            check_that_nothing_began(sent, code, output)
            lane.seconds *= 1.1  # so it is when the machine has become slower; one that ends by itself corrects it
            return "nothing"
        end = check_end(ledger, sent, code, output)
        check_that_it_goes_on(lane, ledger)
    except AssertionError as error:
        raise AssertionError(f"{sent.name} to {run_id} after {instant:.3f} s: {error}\n{output}") from error
    shutil.rmtree(ledger.path)
    return end


def check_that_nothing_began(sent: signal.Signals, code: int, output: str) -> None:
    if "Traceback" not in output:
        assert code in (MEANING[sent][1], -sent)
    else:  # Python's own, which has not come to hostcore yet
        assert sent == signal.SIGINT
        assert code == (1 if "Fatal Python error: init_" in output else -sent)
        assert COMMAND_CALLED not in output


def check_end(ledger: Ledger, sent: signal.Signals, code: int, output: str) -> str:
    """Check that the attempt has one end, and that everybody tells the same of it."""
    # In a callback of its import machinery, Python itself shows a KeyboardInterrupt and goes on.
    assert "Traceback" not in output or (sent == signal.SIGINT and "Exception ignored in" in output)
    result = ledger.result
    assert result is not None
    status, exit_code, requested_by = MEANING[sent] if result["status"] != "succeeded" else ("succeeded", 0, None)
    assert (result["status"], result["exit_code"], result["requested_by"]) == (status, exit_code, requested_by)
    assert result["error"] is None
    assert code == exit_code
    assert result["step"] == STEPS or status != "succeeded"
    names = [event["event"] for event in ledger.events]
    assert [name for name in names if name in ENDS] == [f"run_{status}"]
    assert names[-1] == f"run_{status}"
    ledger.check_numbers()
    ledger.check_checkpoints(keep=3)
    assert ledger.hidden == []
    assert not (ledger.path / "lease.json").exists()
    return status


def check_that_it_goes_on(lane: Lane, ledger: Ledger) -> None:
    """Start the run again, and compare it with one that was not interrupted."""
    assert lane.nursery.run(short_job(ledger.path.name))[0] == 0
    result = ledger.result
    assert result is not None
    assert (result["status"], result["step"]) == ("succeeded", STEPS)
    assert ledger.losses == lane.unharmed.losses
    steps = [event["step"] for event in ledger.events if event["event"] == "metrics"]
    assert steps == list(range(1, STEPS + 1)), "a run that was asked to stop loses no step and repeats none"
    assert ledger.weights == lane.unharmed.weights
    ledger.check_digest()
    ledger.check_numbers()
