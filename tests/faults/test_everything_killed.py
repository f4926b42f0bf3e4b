"""A run with all that hostcore keeps at once, killed at random instants: nothing is lost, changed or left half-way.

Shuffled rows, accumulation, dropout, validation, two ranks, a required uploader and a required reporter; the victim is
the supervisor or one of the ranks, at any instant from the start of the command on.
"""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from buckets import LOCAL
from command_line import COMMAND
from fork_server import run
from ledger import Ledger
from started import Started, is_gone
from test_delivery_faults import Receiver, receiving
from thoroughness import instants, points
from waiting import wait_until

KILLS = points(3, long=200)
#: Of one run: each must come to its end some time, and the losses of its last attempts be compared.
KILLS_OF_A_RUN = 20
STEPS = 24
RANKS = 2


@attrs.frozen
class Place:
    """The folder with data, runs and the mirror, and the reporter's server."""

    folder: Path
    receiver: Receiver

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def start(self, run_id: str) -> Started:
        train, validation = (str(self.folder / "data" / name) for name in ("train.parquet", "validation.parquet"))
        job = {
            "run_id": run_id,
            "trainer": "digits",
            "hyperparams": {"channels": 4},
            "dataset": {"parquet_paths": train, "batch_size": 8, "shuffle": True},
            "validation": {"parquet_paths": validation, "batch_size": 64},
            "accumulate": 2,
            "devices": ["cpu"] * RANKS,
            "deterministic": True,
            "max_steps": STEPS,
            "metric_every": 1,
            "validate_every": 6,
            "checkpoint_every": 2,
            "keep_checkpoints": 3,
            "terminal": False,
            "uploaders": [{"use": "fsspec", "uri": str(self.folder / "mirror"), "required": True}],
            "reporters": [
                {"use": "webhook", "url": f"http://127.0.0.1:{self.receiver.server_port}/{run_id}", "required": True}
            ],
        }
        return Started.start(self.runs, job)

    def finish(self, run_id: str) -> Ledger:
        """Run it to its end, and see that it is whole, here, in the mirror and at the reporter."""
        started = self.start(run_id)
        assert started.wait() == 0, started.printed
        ledger = Ledger(self.runs / run_id)
        self.command("verify", run_id)
        self.check_mirror(ledger)
        if "finished before" in started.printed and self.receiver.seqs[-1:] != [ledger.events[-1]["seq"]]:
            # Killed behind its result: a finished run delivers no events by itself, and prints the command that does.
            assert f"hostcore replay {run_id} --reporter webhook --pending" in started.printed
            self.command("replay", run_id, "--reporter", "webhook", "--pending")
        self.receiver.assert_has_heard(ledger.events)
        self.receiver.events.clear()
        return ledger

    def command(self, *arguments: str) -> None:
        done = run([COMMAND, *arguments], cwd=self.folder, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def check_mirror(self, ledger: Ledger) -> None:
        """See that the mirror has what the run directory has, and of its checkpoints at least these, each whole."""
        mirror = self.folder / "mirror" / ledger.path.name / "framework=digits"
        for name, content in contents(ledger.path).items():
            assert (mirror / name).read_bytes() == content, name
        Ledger(mirror).check_checkpoints(keep=len(Ledger(mirror).steps))


def contents(run: Path) -> Mapping[str, bytes]:
    """The files of a run directory that are uploaded, by name."""
    paths = (path for path in run.rglob("*") if path.is_file())
    names = ((path.relative_to(run).as_posix(), path) for path in paths)
    return {name: path.read_bytes() for name, path in names if name.split("/")[0] not in LOCAL}


def metrics(ledger: Ledger) -> Sequence[Mapping[str, Any]]:
    """The metrics of each step and validation; where a step was made several times, all must agree."""
    found: dict[tuple[str, int], Mapping[str, float]] = {}
    for event in ledger.events:
        if event["event"] in ("metrics", "validation"):
            values = {name: value for name, value in event["metrics"].items() if "loss" in name or "accuracy" in name}
            known = found.setdefault((event["event"], event["step"]), values)
            assert known == values, f"another {event['event']} of step {event['step']} after a kill"
    return [{"of": key, **values} for key, values in sorted(found.items())]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("everything")
    subprocess.run([sys.executable, "-m", "digits.prepare_data", "--out", folder / "data"], check=True)
    (folder / "runs").mkdir()
    with receiving() as receiver:
        yield Place(folder, receiver)


def kill_until_it_ends(
    place: Place, run_id: str, victims: Iterator[str], seconds: Iterator[float], *, at_most: int
) -> Counter[str]:
    """Start a run again and again, and kill one of its processes each time, some times or until it comes to its end."""
    counts = Counter[str](runs=1)
    while counts["kills"] < at_most:
        started = place.start(run_id)
        time.sleep(next(seconds))
        workers = started.workers
        victim = next(victims) if len(workers) == RANKS else "supervisor"
        victim_pid = {"supervisor": started.process.pid, **{f"rank {rank}": pid for rank, pid in enumerate(workers)}}
        with suppress(ProcessLookupError):
            os.kill(victim_pid[victim], signal.SIGKILL)
        code = started.wait()
        wait_until(lambda: all(map(is_gone, workers)), "the workers to end")  # noqa: B023
        if code == 0:
            break
        assert code in (1, -signal.SIGKILL), started.printed
        counts.update({"kills": 1, victim: 1})
    return counts


def test_a_run_with_everything_is_the_same_after_kills(place: Place, seed: int) -> None:
    rng, counts = random.Random(seed), Counter[str]()
    warm = metrics(place.finish("warm"))
    began = time.monotonic()
    assert place.start("whole").wait() == 0
    life = time.monotonic() - began
    whole = place.finish("whole")
    expected = metrics(whole)
    assert expected == warm
    assert len(expected) >= STEPS + STEPS // 6
    victims, when = itertools.cycle(["supervisor", "rank 1", "rank 0"]), instants(rng)
    while (left := KILLS - counts["kills"]) > 0:
        assert counts["runs"] < 2 * KILLS, f"most runs end before they are killed: {counts}"
        run_id = f"killed-{counts['runs']}"
        seconds = (at * life for at in when)
        counts += kill_until_it_ends(place, run_id, victims, seconds, at_most=min(left, KILLS_OF_A_RUN))
        ledger = place.finish(run_id)
        assert metrics(ledger) == expected
        assert ledger.weights == whole.weights
        ledger.check_numbers()
        shutil.rmtree(ledger.path)
    print(dict(counts))
