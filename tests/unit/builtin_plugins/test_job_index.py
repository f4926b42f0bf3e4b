import json
import multiprocessing
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from hostcore_builtin_plugins.job_index import JobIndexReporter
from hostcore_hookspecs import Event, FatalError, Job, ReporterContext
from hostcore_hookspecs.events import (
    Metrics,
    RunCancelled,
    RunError,
    RunFailed,
    RunPreempted,
    RunSubmitted,
    RunSucceeded,
)

MakeEvent = Callable[..., Event]

SUBMITTED = RunSubmitted(trainer="mine", max_steps=5, devices=["cuda:0", "cuda:1"])


def report(
    runs: Path, events: Iterable[Event], *, run_id: str = "flights-1", last_seq: int = 0, **settings: Any
) -> None:
    reporter = JobIndexReporter(settings=JobIndexReporter.Settings(**settings))
    job = Job(run_id=run_id, weights="/data/w.pt")
    reporter.open(ReporterContext(run_id=run_id, attempt=1, job=job, run_dir=str(runs / run_id), last_seq=last_seq))
    for event in events:
        reporter.report_event(event)
    reporter.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_has_a_line_when_it_is_submitted_and_one_when_it_ends(tmp_path: Path, event: MakeEvent) -> None:
    events = [event(SUBMITTED), event(Metrics(metrics={}), step=1), event(RunSucceeded(), step=5)]
    report(tmp_path, events, config_path=Path("/jobs/job.json"), profile="prod")
    first, last = lines(tmp_path / "index.jsonl")
    assert first == {
        "job_id": "flights-1",
        "submitted_at": "2023-11-14T22:13:20.000Z",
        "config_path": "/jobs/job.json",
        "weights": "/data/w.pt",
        "profile": "prod",
        "devices": ["cuda:0", "cuda:1"],
        "log_path": str(tmp_path / "flights-1" / "logs" / "events.jsonl"),
        "status": "submitted",
        "exit_code": None,
        "ended_at": None,
        "attempt": 1,
        "seq": 1,
    }
    assert last == {**first, "status": "succeeded", "exit_code": 0, "ended_at": "2023-11-14T22:13:20.000Z", "seq": 3}


def test_without_a_job_file_the_job_is_the_one_in_the_run_directory(tmp_path: Path, event: MakeEvent) -> None:
    report(tmp_path, [event(SUBMITTED)])
    (line,) = lines(tmp_path / "index.jsonl")
    assert line["config_path"] == str(tmp_path / "flights-1" / "config" / "run.json")


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [
        (RunFailed(error=RunError(type="ValueError", message="no")), "failed", 1),
        (RunPreempted(), "preempted", 75),
        (RunCancelled(), "cancelled", 130),
    ],
    ids=["failed", "preempted", "cancelled"],
)
def test_the_end_has_the_status_and_the_exit_code_of_the_run(
    tmp_path: Path, event: MakeEvent, end: Any, status: str, code: int
) -> None:
    report(tmp_path, [event(SUBMITTED), event(end)])
    last = lines(tmp_path / "index.jsonl")[-1]
    assert (last["status"], last["exit_code"]) == (status, code)


def test_what_comes_again_is_written_once_and_an_end_that_comes_late_knows_the_rest(
    tmp_path: Path, event: MakeEvent
) -> None:
    path = tmp_path / "jobs" / "index.jsonl"
    submitted, ended = event(SUBMITTED), event(RunPreempted())
    again, done = event(SUBMITTED, attempt=2), event(RunSucceeded(), attempt=2)
    report(tmp_path, [submitted], path=path, profile="prod")
    report(tmp_path, [submitted, ended, again, done], path=path, last_seq=2)
    found = lines(path)
    assert [line["status"] for line in found] == ["submitted", "preempted", "submitted", "succeeded"]
    assert [line["attempt"] for line in found] == [1, 1, 2, 2]
    assert {tuple(line["devices"]) for line in found} == {("cuda:0", "cuda:1")}
    assert {line["profile"] for line in found} == {"prod"}


def test_a_new_run_under_the_name_of_a_deleted_one_has_lines_of_its_own(tmp_path: Path) -> None:
    for profile in ("one", "two"):
        report(tmp_path, _two_events(), profile=profile)
    assert [line["profile"] for line in lines(tmp_path / "index.jsonl")] == ["one", "one", "two", "two"]


def test_torn_and_foreign_lines_stay_apart_from_those_that_are_added(tmp_path: Path, event: MakeEvent) -> None:
    path = tmp_path / "index.jsonl"
    path.write_bytes(b'{"job_id": "flights-1", "seq": 9}\n[1]\nnot json\n{"job_id": "flights-1", "sta')
    report(tmp_path, [event(SUBMITTED), event(RunSucceeded())], last_seq=1)
    written = path.read_bytes().splitlines()
    assert written[3] == b'{"job_id": "flights-1", "sta'
    assert [json.loads(line)["status"] for line in written[4:]] == ["submitted", "succeeded"]


def _report_many(runs: Path, name: str) -> None:
    for number in range(50):
        report(runs, _two_events(), run_id=f"{name}-{number}", profile=name * 500)


def _two_events() -> list[Event]:
    about = {"time_ms": 0, "run_id": "r", "attempt": 1}
    return [Event(seq=1, payload=SUBMITTED, **about), Event(seq=2, payload=RunSucceeded(), **about)]


def test_runs_that_write_at_once_tear_no_line(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_report_many, args=(tmp_path, name)) for name in ("a", "b", "c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = lines(tmp_path / "index.jsonl")
    assert len(found) == 300
    assert {line["status"] for line in found if line["seq"] == 2} == {"succeeded"}


def test_a_path_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="cannot write") as raised:
        report(tmp_path, [], path=tmp_path)
    assert raised.value.hint


def test_a_full_disk_is_an_error_and_the_line_comes_again(
    tmp_path: Path, event: MakeEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = event(SUBMITTED)
    reporter = JobIndexReporter()
    reporter.open(ReporterContext(run_id="flights-1", attempt=1, job=Job(), run_dir=str(tmp_path / "flights-1")))
    write = os.write
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "write", lambda fd, line: write(fd, line[:20]))
        reporter.report_event(submitted)
    reporter.report_event(submitted)
    torn, whole = (tmp_path / "index.jsonl").read_bytes().splitlines()
    assert torn == whole[:20]
