"""What a run looks like from outside, derived from its directory alone."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.directory import runs_dir
from hostcore.runs.lease import Lease
from hostcore.runs.summary import list_runs, summarize

Happens = Callable[[Any, Any], object]


def attempt(number: int) -> Happens:
    return lambda run, _: run.attempt(number)


def claim(run: Any, holder: Any) -> None:
    """An attempt begins, and has no lease yet."""
    claim_attempt(run.directory.attempts, 1, process=holder.identity, started_ms=now_ms())


def lease(step: int, *, attempt: int = 1) -> Happens:
    return lambda run, holder: run.lease(holder.identity, attempt=attempt, step=step)


def death(_run: Any, holder: Any) -> None:
    """The holder of the lease dies."""
    holder.end()


def result(status: str) -> Happens:
    return lambda run, _: run.result(status, step=12, ended_ms=5000)


@pytest.mark.parametrize(
    ("happened", "found"),
    [
        ([], ("submitted", 0, 0, None)),
        ([claim], ("running", 0, 1, None)),
        ([claim, death], ("lost", 0, 1, None)),
        ([attempt(1), lease(7)], ("running", 7, 1, None)),
        ([attempt(1), lease(7), death], ("lost", 7, 1, None)),
        *(([attempt(1), result(end)], (end, 12, 1, 5000)) for end in ("succeeded", "failed", "cancelled", "preempted")),
        ([attempt(1), result("succeeded"), lease(7), death], ("succeeded", 12, 1, 5000)),  # a dead lease is left
        ([attempt(1), result("succeeded"), attempt(2)], ("lost", 12, 2, None)),
        ([attempt(1), result("preempted"), attempt(2), lease(13, attempt=2)], ("running", 13, 2, None)),
        # The step is that of the attempt before until the next one reports its own.
        ([attempt(1), result("preempted"), attempt(2), lease(0, attempt=2)], ("running", 12, 2, None)),
    ],
)
def test_the_status_of_a_run_follows_from_its_files(
    run_folder: Callable, holder: Any, happened: list[Happens], found: tuple[str, int, int, int | None]
) -> None:
    run = run_folder()
    for happens in happened:
        happens(run, holder)
    summary = summarize(run.directory)
    assert (summary.status, summary.step, summary.attempt, summary.ended_ms) == found


def test_a_run_is_running_while_the_claim_of_its_attempt_is_being_written(run_folder: Callable) -> None:
    run = run_folder()
    run.attempt(1)
    run.result("preempted")
    claim = run.directory.attempts / "2.json"
    claim.touch()
    assert summarize(run.directory).status == "running"
    long_ago = claim.stat().st_mtime - 3600
    os.utime(claim, (long_ago, long_ago))
    assert summarize(run.directory).status == "lost"


def test_the_time_of_a_run_goes_on_until_its_end_or_the_last_sign_of_life(run_folder: Callable, holder: Any) -> None:
    run = run_folder()
    run.attempt(1)
    run.lease(holder.identity)
    assert summarize(run.directory).seconds(now=60_000) == 60.0
    death(run, holder)
    renewed_ms = Lease.read(run.directory.lease).renewed_ms
    assert summarize(run.directory).seconds(now=renewed_ms + 60_000) == renewed_ms / 1000
    run.result("succeeded", ended_ms=2500)
    assert summarize(run.directory).seconds(now=10**9) == 2.5


def test_the_list_of_runs_names_what_cannot_be_read_and_passes_over_what_is_no_run(
    run_folder: Callable, tmp_path: Path
) -> None:
    run_folder("good")
    for name, content in (("no-json", "{"), ("no-trainer", '{"job":{},"job_dir":""}'), ("no-job", '{"job":null}')):
        run_folder(name).directory.record.write_text(content)
    run_folder("no-lease").directory.lease.write_text("{}")  # a lease is advice
    run_folder("no-result").directory.result.write_text('{"status":1}')
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "file.txt").touch()
    runs, broken = list_runs(tmp_path / "runs")
    assert sorted(run.run_id for run in runs) == ["good", "no-lease"]
    assert [Path(one["path"]).name for one in broken] == ["no-job", "no-json", "no-result", "no-trainer"]
    assert all(one["error"] for one in broken)


@pytest.mark.parametrize(("variable", "folder"), [("", "runs"), ("elsewhere", "elsewhere")])
def test_the_runs_folder_is_where_the_variable_says_or_runs_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, folder: str
) -> None:
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", variable)
    monkeypatch.chdir(tmp_path)
    assert runs_dir() == tmp_path / folder
