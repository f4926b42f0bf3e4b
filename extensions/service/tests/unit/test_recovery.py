"""A service that starts beside run directories into which jobs have written what they like."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.plugins.installed import discover
from hostcore.runs.directory import RunDirectory
from hostcore.runs.launch import Launch
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.runs.used import UseQuery
from hostcore_hookspecs.launcher import LaunchHandle
from hostcore_service.admission import Admission
from hostcore_service.recovery import record_of, recover
from hostcore_service.settings import Settings
from hostcore_service.store.database import open_database
from hostcore_service.store.jobs import Filter, Jobs


def test_a_start_makes_paths_only_of_the_runs_that_the_database_does_not_know(
    service_here: Callable[..., Settings], a_job: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = service_here()
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    admission = Admission.of(settings, Jobs(engine), discover())
    for number in range(50):
        admission.jobs.add(a_job(f"known-{number}", phase="ended"))
    for name in [*(f"known-{number}" for number in range(50)), "other-b", "other-a", ".hidden"]:
        (settings.runs / name).mkdir(parents=True)
    read: list[str] = []
    run_directory = RunDirectory

    def note(path: Path) -> RunDirectory:
        read.append(path.name)
        return run_directory(path)

    asked: list[str] = []
    is_dir = Path.is_dir
    monkeypatch.setattr("hostcore_service.recovery.RunDirectory", note)
    monkeypatch.setattr(Path, "is_dir", lambda path: asked.append(path.name) or is_dir(path))
    monkeypatch.setattr(Path, "iterdir", lambda _: pytest.fail("paths of all runs are made"))
    assert recover(admission) == []
    assert read == ["other-a", "other-b"]
    assert set(asked) == {"other-a", "other-b"}
    engine.dispose()


@pytest.mark.parametrize(
    "keys",
    [{"max_steps": 1 << 63}, {"owner": {}}, {"labels": [1]}, {"labels": {"team": {}}}, {"labels": {"team": None}}],
    ids=str,
)
def test_a_run_with_values_that_no_service_has_written_keeps_no_other_from_being_found(
    keys: dict[str, Any], service_here: Callable[..., Settings], a_job: Callable[..., Any], tmp_path: Path
) -> None:
    settings = service_here()
    for run_id, more in (("a-hostile", keys), ("b", {})):
        directory = RunDirectory(settings.runs / run_id)
        directory.make()
        job = a_job(run_id)
        recorded = {**record_of(job), "job": {**job.job, "run_id": run_id, **more}}
        handle = LaunchHandle(launcher="local", id="1")
        Launch(attempt=1, submitted_ms=1, launch_id=job.launch_id, handle=handle, recorded=recorded).write(
            directory.launch
        )
        assert json.loads(directory.launch.read_bytes())["recorded"]
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    assert recover(Admission.of(settings, Jobs(engine), discover())) == ["b"]
    engine.dispose()


@pytest.mark.parametrize("used", [[{"attempt": 1, "plugins": [{"kind": "trainer", "name": "tiny"}]}], ["hostile"]])
def test_an_ended_run_that_is_found_again_is_found_by_what_it_used(
    used: list[Any], service_here: Callable[..., Settings], a_job: Callable[..., Any], tmp_path: Path
) -> None:
    settings = service_here()
    directory = RunDirectory(settings.runs / "a")
    directory.make()
    job = a_job("a")
    Launch(attempt=1, submitted_ms=1, launch_id=job.launch_id, recorded=record_of(job)).write(directory.launch)
    RunRecord(job=job.job, job_dir="/", used=used).write(directory.record)
    ended = {"status": "failed", "exit_code": 1, "step": 7, "epoch": 0, "started_ms": 1, "ended_ms": 1000}
    RunResult(run_id="a", attempt=1, **ended).write(directory.result)
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    jobs = Jobs(engine)
    assert recover(Admission.of(settings, jobs, discover())) == ["a"]
    wanted = Filter(use=UseQuery.parse(plugins=["tiny"]))
    found = [one.run_id for one in jobs.page(wanted, after=None, limit=9)]
    assert (found, jobs.unknown(wanted)) == ((["a"], 0) if used != ["hostile"] else ([], 1))
    engine.dispose()
