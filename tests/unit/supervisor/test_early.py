"""Workers that are started before it is known what they are to do."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from hostcore.cli.event_options import EventOptions
from hostcore.cli.running import run_plan
from hostcore.job.load import load_job
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore.supervisor.ranks.engine import RANK_VARIABLES, without_ranks
from hostcore.supervisor.workers import early
from hostcore.supervisor.workers.early import EarlyWorker, worker_environment
from hostcore.supervisor.workers.spawn import LocalRanks, WorkerProcess
from hostcore_hookspecs import HostcoreError

#: Says something, and then waits until somebody opens the pipe.
WAITS = "echo said early; cat pipe; exit 3"


@pytest.fixture
def interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``interpreter(script)`` is started in place of Python, in a folder that has a named pipe, ``pipe``."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")

    def make(script: str) -> None:
        (tmp_path / "python").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "python").chmod(0o755)
        monkeypatch.setattr(early.sys, "executable", str(tmp_path / "python"))

    return make


def as_worker(given: EarlyWorker, folder: Path, **changes: str) -> WorkerProcess:
    """A worker whose contract does not exist."""
    environment = {**LocalRanks(1).environment(0), **changes}
    return WorkerProcess(folder / "contract.json", folder / "output", environment, early=given)


def has_said(given: EarlyWorker, words: bytes) -> None:
    """Wait for what it writes."""
    wait_until(lambda: words in given.unheard(), f"it to say {words!r}")


def test_a_worker_started_early_is_told_later_what_to_do_and_where_to_write(
    tmp_path: Path, interpreter: Callable[[str], None]
) -> None:
    interpreter(f'echo said early; exec {sys.executable} "$@"')
    with EarlyWorker() as given:
        has_said(given, b"said early")
        worker = as_worker(given, tmp_path, CUDA_VISIBLE_DEVICES="GPU-1")
    started = worker._process.pid
    kind, (error,) = worker.channel.receive(120)
    assert (kind, error["file"]) == ("invalid", str(tmp_path / "contract.json"))
    assert worker.wait().code == 2
    assert (tmp_path / "output").read_text() == "said early\n"
    assert started == worker._process.pid  # it was not closed with what has started it


def test_a_worker_that_is_not_needed_ends_with_the_command(interpreter: Callable[[str], None]) -> None:
    interpreter(WAITS)
    with EarlyWorker() as given:
        process = given._process
        assert process is not None
    assert process.returncode == -9


def test_a_worker_ends_when_its_supervisor_is_gone_before_it_was_told_anything(tmp_path: Path) -> None:
    with EarlyWorker() as given:
        process = given._process
        assert process is not None
        given._handover.close()  # as the kernel does it for a process that was killed
        assert process.wait(300) == 0


def test_a_worker_that_is_told_what_makes_no_sense_says_so_and_ends(tmp_path: Path) -> None:
    with EarlyWorker() as given:
        process = given.take(tmp_path / "contract", [0], given._environment)  # no descriptor to write to
        assert process is not None
        assert process.wait(300) == 1
        assert b"\nValueError: not enough values to unpack" in given.unheard()


def test_a_worker_that_cannot_write_where_it_is_told_to_ends(tmp_path: Path) -> None:
    with EarlyWorker() as given, Path("/dev/full").open("wb") as full:
        os.write(given._output.fileno(), b"said early")
        process = given.take(tmp_path / "contract", [0, full.fileno()], given._environment)
        assert process is not None
        assert process.wait(300) == 1


def test_nothing_stays_open_where_no_worker_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early.sys, "executable", str(tmp_path / "python"))
    before = len(list(Path("/dev/fd").iterdir()))
    given = EarlyWorker()
    assert given._process is None
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_an_environment_that_it_cannot_take_over_any_more_means_another_worker(
    tmp_path: Path, interpreter: Callable[[str], None]
) -> None:
    interpreter(WAITS)
    with EarlyWorker() as given:
        process = given._process
        has_said(given, b"said early")  # its shell has read the script, which changes now
        interpreter("exit 4")
        worker = as_worker(given, tmp_path, OMP_NUM_THREADS="7")
    assert worker.wait().code == 4
    assert process is not None
    assert process.returncode == -9


def test_a_worker_that_has_died_meanwhile_is_started_again(tmp_path: Path, interpreter: Callable[[str], None]) -> None:
    interpreter("exit 3")
    with EarlyWorker() as given:
        assert given._process is not None
        given._process.wait()
        interpreter("echo said later; exit 4")
        worker = as_worker(given, tmp_path)
    assert worker.wait().code == 4
    assert (tmp_path / "output").read_text() == "said later\n"


def test_the_last_words_of_a_worker_that_died_before_it_was_told_are_in_its_output(
    tmp_path: Path, interpreter: Callable[[str], None]
) -> None:
    interpreter(WAITS)
    with EarlyWorker() as given:
        worker = as_worker(given, tmp_path)
        (tmp_path / "pipe").write_text("and torch is broken\n")
    assert worker.wait().code == 3
    assert (tmp_path / "output").read_text() == "said early\nand torch is broken\n"


def test_of_several_ranks_none_is_started_early(interpreter: Callable[[str], None]) -> None:
    interpreter(WAITS)
    with EarlyWorker() as given:
        process = given._process
        assert process is not None
        LocalRanks(2, early=given)
        assert process.returncode == -9


HERE = {"interpreter": sys.executable}


@pytest.mark.parametrize(
    ("keys", "is_kept"),
    [
        ({}, True),
        ({"labels": {"environment": "staging"}}, True),
        ({"environment": {**HERE, "used_by": "programs"}}, True),
        ({"launcher": "slurm", "devices": ["cpu", "cpu"]}, False),  # checked here as rank 0 of two
        ({"launcher": "slurm"}, True),
        ({"environment": HERE}, False),
        ({"environment": HERE, "launcher": "slurm"}, False),
        ({"devices": ["cpu", "cpu"]}, False),
    ],
    ids=str,
)
def test_it_ends_when_the_job_turns_out_to_have_no_use_for_it(
    interpreter: Callable[[str], None], keys: dict[str, Any], is_kept: bool
) -> None:
    interpreter(WAITS)
    with EarlyWorker() as given:
        process = given._process
        assert process is not None
        given.look(load_job({"trainer": "somewhere:Trainer", "max_steps": 1, **keys}))
        assert process.returncode == (None if is_kept else -9)


def test_it_ends_before_what_is_left_to_do_for_a_run_that_has_finished(
    interpreter: Callable[[str], None], plan: Callable[..., RunPlan], past: Callable[..., Any]
) -> None:
    finished = plan(resume_from_checkpoint="auto")
    earlier = past(finished)
    earlier.attempt()
    earlier.result("succeeded")
    interpreter(WAITS)
    with EarlyWorker() as given, Interrupts() as interrupts:
        process = given._process
        assert process is not None
        how = {"in_process": False, "launched": False, "events": EventOptions(), "as_json": True}
        assert run_plan(finished, interrupts, ranks=None, early=given, **how) == 0
        assert process.returncode == -9


def test_the_job_is_looked_at_before_its_environment_is_asked_or_built() -> None:
    seen = []
    job = {"trainer": "somewhere:Trainer", "max_steps": 1, "environment": {"interpreter": "/no/python"}}
    with pytest.raises(HostcoreError, match="cannot be started"):
        make_plan(job, look=seen.append)
    assert [spec.environment.interpreter for spec in seen if spec.environment] == ["/no/python"]


@pytest.mark.parametrize("variable", RANK_VARIABLES)
def test_ranks_of_an_engine_start_none_early(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    with EarlyWorker() as given:
        assert given._process is None


def test_it_has_the_environment_of_a_worker_that_is_started_later() -> None:
    assert worker_environment(LocalRanks(1).environment(0)) == worker_environment(without_ranks(os.environ))
