"""An environment of a job, which the machine of another rank has to build."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest
from stand_ins import SECONDS, engine

from hostcore.job.sections import EnvironmentSpec
from hostcore.runs.result import INVALID
from hostcore.supervisor.attempt.documents import write_contracts, write_record
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import open_run
from hostcore.supervisor.plan import make_plan
from hostcore_engines.ranks import rank_agent
from hostcore_engines.ranks.rank_agent import run_rank_agent
from hostcore_engines.ranks.rendezvous import Rendezvous


class Building:
    """Builds an environment and tells of it, and comes to no end by itself."""

    def __init__(self) -> None:
        self.begun, self.ended, self.over = threading.Event(), threading.Event(), threading.Event()
        self.lock: str | None = None

    def __call__(self, *_: Any, lock: str | None, tell: Callable[[str], object], **__: Any) -> Any:
        self.lock = lock
        self.begun.set()
        try:
            while not self.over.wait(0.01):
                tell("environment: building it")
        finally:
            self.ended.set()


@pytest.fixture
def building(monkeypatch: pytest.MonkeyPatch) -> Iterator[Building]:
    """What builds the environment on another machine. It has ended when the supervisor there has."""
    building = Building()
    monkeypatch.setattr(rank_agent, "job_python", building)
    yield building
    assert building.ended.is_set() == building.begun.is_set()
    building.over.set()


@pytest.fixture
def elsewhere(tmp_path: Path, building: Building) -> Iterator[Any]:
    """``elsewhere()``: rank 0 has told rank 1, and sees its worker so."""
    job = {"trainer": "somewhere:Trainer", "run_id": "a", "max_steps": 10, "terminal": False}
    plan = make_plan(job, runs=tmp_path / "runs")
    spec = attrs.evolve(plan.spec, environment=EnvironmentSpec(requirements=("numpy",)), world_size=2)
    planned = attrs.evolve(plan, spec=spec, python="/of/rank-0/bin/python", lock="# the lock\n")
    opening = open_run(planned)
    write_record(planned, opening.record_before, started_ms=0, attempt=1, world_size=2)
    write_contracts(planned, opening)
    directory = opening.directory
    with ThreadPoolExecutor(1) as threads, Rendezvous(engine(0), tmp_path / "runs", Interrupts()) as ranks:
        threads.submit(run_rank_agent, engine(1), tmp_path / "runs", Interrupts())
        ranks.gather()
        yield lambda: ranks.spawn(1, directory.contract(1, 1), directory.rank_output(1, 1))


def test_that_is_being_built_ends_with_the_run_that_is_cancelled(elsewhere: Callable, building: Building) -> None:
    worker = elsewhere()
    assert building.begun.wait(SECONDS)
    worker.kill()
    assert worker.wait().code == INVALID
    assert building.ended.wait(SECONDS)
    assert building.lock == "# the lock\n"


def test_that_is_being_built_ends_with_the_run_that_has_ended(elsewhere: Callable, building: Building) -> None:
    elsewhere()
    assert building.begun.wait(SECONDS)


def test_a_run_directory_that_cannot_be_read_there_is_told_apart_from_it(
    elsewhere: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rank_agent.RunDirectory, "read_lock", fails)
    worker = elsewhere()
    kind, (error,) = worker.channel.receive(SECONDS)
    assert (kind, error["code"]) == ("invalid", "run.unwritable")
    assert "No space left on device" in error["message"]
    assert worker.wait().code == INVALID
