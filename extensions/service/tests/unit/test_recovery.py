"""A service that starts beside run directories into which jobs have written what they like."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

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
from hostcore_service.store.jobs import Filter, Jobs

#: Values that no service has written.
HOSTILE: list[dict[str, Any]] = [{"max_steps": 1 << 63}, {"owner": {}}]
HOSTILE += [{"labels": labels} for labels in ([1], {"team": {}}, {"team": None})]


def test_a_run_with_values_that_no_service_has_written_keeps_no_other_from_being_found(
    service_here: Callable[..., Settings], a_job: Callable[..., Any], sqlite_engine: Engine
) -> None:
    settings = service_here()
    for run_id, more in {**{f"a-{number}": keys for number, keys in enumerate(HOSTILE)}, "b": {}}.items():
        directory = RunDirectory(settings.runs / run_id)
        directory.make()
        job = a_job(run_id)
        recorded = {**record_of(job), "job": {**job.job, "run_id": run_id, **more}}
        handle = LaunchHandle(launcher="local", id="1")
        Launch(attempt=1, submitted_ms=1, launch_id=job.launch_id, handle=handle, recorded=recorded).write(
            directory.launch
        )
        assert json.loads(directory.launch.read_bytes())["recorded"]
    assert recover(Admission.of(settings, Jobs(sqlite_engine), discover())) == ["b"]


@pytest.mark.parametrize("used", [[{"attempt": 1, "plugins": [{"kind": "trainer", "name": "tiny"}]}], ["hostile"]])
def test_an_ended_run_that_is_found_again_is_found_by_what_it_used(
    used: list[Any], service_here: Callable[..., Settings], a_job: Callable[..., Any], sqlite_engine: Engine
) -> None:
    settings = service_here()
    directory = RunDirectory(settings.runs / "a")
    directory.make()
    job = a_job("a")
    Launch(attempt=1, submitted_ms=1, launch_id=job.launch_id, recorded=record_of(job)).write(directory.launch)
    RunRecord(job=job.job, job_dir="/", used=used).write(directory.record)
    ended = {"status": "failed", "exit_code": 1, "step": 7, "epoch": 0, "started_ms": 1, "ended_ms": 1000}
    RunResult(run_id="a", attempt=1, **ended).write(directory.result)
    jobs = Jobs(sqlite_engine)
    assert recover(Admission.of(settings, jobs, discover())) == ["a"]
    wanted = Filter(use=UseQuery.parse(plugins=["tiny"]))
    found = [one.run_id for one in jobs.page(wanted, after=None, limit=9)]
    assert (found, jobs.unknown(wanted)) == ((["a"], 0) if used != ["hostile"] else ([], 1))
