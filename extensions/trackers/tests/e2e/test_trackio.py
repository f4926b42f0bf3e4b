"""The reporter trackio with the real library and its database."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from hostcore_hookspecs import Event, FatalError, Job, TransientError
from hostcore_hookspecs.events import Metrics, RunPreempted, RunSubmitted, RunSucceeded, Validation
from hostcore_trackers.trackio.reporter import TrackioReporter

Course = Any
MakeCourse = Callable[..., Course]

JOB = Job(trainer="flights", hyperparams={"lr": 0.1, "sizes": [64, 8]}, max_steps=30)

#: Trackio knows one folder in a process.
READ_BACK = """
import json, sys, trackio
from trackio.sqlite_storage import SQLiteStorage
runs = trackio.Api().runs("flights")
json.dump([(run.id, run.name, run.config, SQLiteStorage.get_logs("flights", run.name)) for run in runs], sys.stdout)
"""


def reporter_of(folder: Path, **settings: Any) -> TrackioReporter:
    return TrackioReporter(settings=TrackioReporter.Settings(dir=folder, timeout_seconds=120.0, **settings))


def steps(run: Course, *steps: int) -> list[Event]:
    return [run.tell(Metrics(metrics={"train/loss": 1 / step, "time": 3.0}), step=step) for step in steps]


def test_a_run_over_two_attempts_is_one_run_of_trackio(
    course: MakeCourse, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, folder, environment = course(job=JOB), tmp_path / "trackio", dict(os.environ)
    told = [run.tell(RunSubmitted(trainer="flights", max_steps=30)), *steps(run, 10, 20)]
    told += [run.tell(Validation(metrics={"val/loss": None}, weight=1), step=20), run.tell(RunPreempted(), step=20)]
    run.report(reporter_of(folder, group="g"), [event for event in told for _ in range(2)])
    run.attempt, run.job = 2, Job(trainer="flights", max_steps=60)
    more = [
        run.tell(RunSubmitted(trainer="flights", max_steps=60)),
        *steps(run, 20, 30),
        run.tell(RunSucceeded(), step=30),
    ]
    run.report(reporter_of(folder, group="g"), [*told[2:], *more])
    run.report(reporter_of(folder), run.events)  # a replay adds nothing
    assert capfd.readouterr() == ("", "")
    assert dict(os.environ) == environment
    left = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
    assert [one for one in left if "trackio" in " ".join(one.cmdline())] == []
    assert {path.name for path in run.run_dir.iterdir()} == {"logs"}

    environment["TRACKIO_DIR"] = str(folder)
    answer = subprocess.run([sys.executable, "-c", READ_BACK], env=environment, capture_output=True, check=True)
    ((run_id, name, config, rows),) = orjson.loads(answer.stdout.replace(b"NaN", b'"NaN"'))
    assert (run_id, name) == ("flights-1-18bcfe56800", "flights-1")
    assert (config["max_steps"], config["_Group"]) == (60, "g"), "the job as it is now"
    curve = [(row["step"], row["train/loss"], row["__time"]) for row in rows if "train/loss" in row]
    assert curve == [(10, 1 / 10, 3), (20, 1 / 20, 3), (30, 1 / 30, 3)]
    assert rows[1]["timestamp"] == "2023-11-14T22:13:21+00:00"
    assert [(row["step"], row["val/loss"]) for row in rows if "val/loss" in row] == [(20, "NaN")]
    status = [row["host/status"] for row in rows if "host/status" in row]
    assert status == ["running", "preempted", "running", "succeeded"]


def test_a_new_run_of_the_same_name_is_another_run(course: MakeCourse, tmp_path: Path) -> None:
    for made in (course("old", job=JOB), course("new", job=JOB, submitted_ms=1_700_000_100_000)):
        made.report(reporter_of(tmp_path), steps(made, 10))
    with closing(sqlite3.connect(tmp_path / "flights.db")) as database:
        found = database.execute("SELECT run_id, json_extract(metrics, '$.train/loss') FROM metrics").fetchall()
    assert len({run_id for run_id, _ in found}) == len(found) == 2


def test_a_folder_that_cannot_be_written_is_an_outage_and_costs_nothing(course: MakeCourse, tmp_path: Path) -> None:
    run, folder = course(job=JOB), tmp_path / "trackio"
    folder.touch()
    reporter = reporter_of(folder)
    reporter.open(run.ctx())
    told = steps(run, 10, 20)
    with pytest.raises(TransientError, match="FileExistsError"):
        reporter.report_event(told[0])
    folder.unlink()
    for event in told:
        reporter.report_event(event)
    reporter.close()
    with closing(sqlite3.connect(folder / "flights.db")) as database:
        assert database.execute("SELECT step FROM metrics ORDER BY id").fetchall() == [(10,), (20,)]


def test_a_project_that_trackio_does_not_take_is_fatal(course: MakeCourse, tmp_path: Path) -> None:
    run = course(job=JOB)
    with pytest.raises(FatalError, match="'a_configs' is not allowed"):
        run.report(reporter_of(tmp_path, project="a_configs"), steps(run, 10))


def test_it_goes_to_no_other_place_that_the_environment_names(
    course: MakeCourse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPACE_ID", "SERVER_URL", "BUCKET_ID"):
        monkeypatch.setenv(f"TRACKIO_{name}", "somebody/else")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "mine"))
    run = course(job=JOB)
    run.report(TrackioReporter(settings=TrackioReporter.Settings(timeout_seconds=120.0)), steps(run, 10))
    assert (tmp_path / "mine" / "flights.db").exists()
