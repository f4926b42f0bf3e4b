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
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
from fork_server import hostcore
from ledger import ENDS, Ledger, job
from started import Started, cold, is_gone
from thoroughness import IS_LONG, instants, points

HERE = Path(__file__).parent
SIGNALS = points(12, long=100)
#: The long suite starts new interpreters, which hear signals before Python has come to `run`, too.
START = cold if IS_LONG else hostcore
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
class Runs:
    """Where the runs are."""

    folder: Path
    #: A run that was not interrupted.
    unharmed: Ledger
    #: About how long one takes now, from the start of its process to the end.
    seconds: float


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("signalled")
    shutil.copy(HERE / "fault_trainer.py", folder)
    (folder / "runs").mkdir()
    assert Started.start(folder / "runs", short_job("warm"), start=START).wait() == 0
    began = time.monotonic()
    assert Started.start(folder / "runs", short_job("unharmed"), start=START).wait() == 0
    return Runs(folder / "runs", Ledger(folder / "runs" / "unharmed"), time.monotonic() - began)


def test_a_signal_at_any_instant_leaves_one_honest_end_and_a_run_that_goes_on(runs: Runs, seed: int) -> None:
    when, counts = instants(random.Random(seed)), Counter[str]()
    while counts.total() < SIGNALS or not (counts["preempted"] > SIGNALS / 10 and counts["cancelled"] > SIGNALS / 20):
        assert counts.total() < 4 * SIGNALS, f"most signals come too early or too late: {counts}"
        sent = list(MEANING)[counts.total() % len(MEANING)]
        if (end := send(runs, f"run-{counts.total()}", sent, next(when))) is not None:
            counts[end] += 1
    print(dict(counts))


def send(runs: Runs, run_id: str, sent: signal.Signals, when: float) -> str | None:
    """Start a run, send it a signal at some instant, check its end, and go on with it.

    :param when: As a part of its life.
    :return: What it ended as; None if it had ended before.
    """
    started, began = Started.start(runs.folder, short_job(run_id), start=START), time.monotonic()
    instant = when * runs.seconds
    with suppress(subprocess.TimeoutExpired):
        assert started.process.wait(instant) == 0
        runs.seconds = time.monotonic() - began
        shutil.rmtree(runs.folder / run_id)
        return None
    workers = started.workers
    started.process.send_signal(sent)
    code, output, ledger = started.wait(), started.printed, Ledger(runs.folder / run_id)
    try:
        assert all(map(is_gone, workers)), "a worker has outlived its supervisor"
        if not ledger.path.exists():
            check_that_nothing_began(sent, code, output)
            runs.seconds *= 1.1  # so it is when the machine has become slower; one that ends by itself corrects it
            return "nothing"
        end = check_end(ledger, sent, code, output)
        check_that_it_goes_on(runs, ledger)
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


def check_that_it_goes_on(runs: Runs, ledger: Ledger) -> None:
    """Start the run again, and compare it with one that was not interrupted."""
    again = Started.start(runs.folder, short_job(ledger.path.name), "--in-process")
    assert again.wait() == 0, again.printed
    result = ledger.result
    assert result is not None
    assert (result["status"], result["step"]) == ("succeeded", STEPS)
    assert ledger.losses == runs.unharmed.losses
    steps = [event["step"] for event in ledger.events if event["event"] == "metrics"]
    assert steps == list(range(1, STEPS + 1)), "a run that was asked to stop loses no step and repeats none"
    assert ledger.weights == runs.unharmed.weights
    ledger.check_digest()
    ledger.check_numbers()
