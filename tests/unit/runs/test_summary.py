"""What a run looks like from outside, derived from its directory alone."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.directory import RunDirectory, runs_dir
from hostcore.runs.lease import Lease
from hostcore.runs.summary import UnknownRun, list_runs, summarize

Happens = Callable[[Any, pytest.FixtureRequest], object]


def attempt(number: int) -> Happens:
    return lambda run, _: run.attempt(number)


def claim(run: Any, request: pytest.FixtureRequest) -> None:
    """An attempt begins, and has no lease yet."""
    identity = request.getfixturevalue("holder").identity
    claim_attempt(run.directory.attempts, 1, process=identity, started_ms=now_ms())


def lease(step: int, *, attempt: int = 1) -> Happens:
    return lambda run, request: run.lease(request.getfixturevalue("holder").identity, attempt=attempt, step=step)


def death(_run: Any, request: pytest.FixtureRequest) -> None:
    """The holder of the lease dies."""
    process = request.getfixturevalue("holder").process
    process.kill()
    process.wait()


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
    run_folder: Callable[..., Any],
    request: pytest.FixtureRequest,
    happened: list[Happens],
    found: tuple[str, int, int, int | None],
) -> None:
    run = run_folder()
    for happens in happened:
        happens(run, request)
    summary = summarize(run.directory)
    assert (summary.status, summary.step, summary.attempt, summary.ended_ms) == found


class TestTheStatusOfARun:
    def test_is_running_while_the_claim_of_its_attempt_is_being_written(self, run_folder: Callable) -> None:
        run = run_folder()
        run.attempt(1)
        run.result("preempted")
        claim = run.directory.attempts / "2.json"
        claim.touch()
        assert summarize(run.directory).status == "running"
        long_ago = claim.stat().st_mtime - 3600
        os.utime(claim, (long_ago, long_ago))
        assert summarize(run.directory).status == "lost"

    def test_of_a_folder_that_is_no_run_is_an_error_with_a_hint(self, tmp_path: Path) -> None:
        with pytest.raises(UnknownRun, match=f"there is no run 'b' in {tmp_path}") as caught:
            summarize(RunDirectory(tmp_path / "b"))
        assert "hostcore list" in caught.value.hint

    def test_comes_with_the_job_s_limits(self, run_folder: Callable) -> None:
        run = run_folder("b", max_steps=99, submitted_ms=123)
        run.attempt(1)
        assert summarize(run.directory).as_dict() == {
            "run_id": "b",
            "status": "lost",
            "trainer": "mine",
            "step": 0,
            "max_steps": 99,
            "attempt": 1,
            "submitted_ms": 123,
            "ended_ms": None,
        }


class TestTheTimeOfARun:
    def test_is_that_of_its_newest_attempt(self, run_folder: Callable) -> None:
        run = run_folder()
        run.attempt(1)
        run.result("succeeded", ended_ms=2500)
        assert summarize(run.directory).seconds(now=10**9) == 2.5

    def test_goes_on_while_it_runs(self, run_folder: Callable, holder) -> None:
        run = run_folder()
        run.attempt(1)
        run.lease(holder.identity)
        assert summarize(run.directory).seconds(now=60_000) == 60.0

    def test_ends_with_the_last_sign_of_life_of_a_lost_one(self, run_folder: Callable, holder) -> None:
        run = run_folder()
        run.attempt(1)
        run.lease(holder.identity)
        holder.process.kill()
        holder.process.wait()
        renewed_ms = Lease.read(run.directory.lease).renewed_ms
        assert summarize(run.directory).seconds(now=renewed_ms + 60_000) == renewed_ms / 1000


class TestTheListOfRuns:
    def test_names_what_cannot_be_read_and_shows_the_rest(self, run_folder: Callable, tmp_path: Path) -> None:
        run_folder("good")
        for name, content in (("no-json", "{"), ("no-trainer", '{"job":{},"job_dir":""}'), ("no-job", '{"job":null}')):
            run_folder(name).directory.record.write_text(content)
        run_folder("no-lease").directory.lease.write_text("{}")
        run_folder("no-result").directory.result.write_text('{"status":1}')
        runs, broken = list_runs(tmp_path / "runs")
        assert sorted(run.run_id for run in runs) == ["good", "no-lease"]  # a lease is advice
        assert [Path(one["path"]).name for one in broken] == [
            "no-job",
            "no-json",
            "no-result",
            "no-trainer",
        ]
        assert all(one["error"] for one in broken)

    def test_passes_over_what_is_no_run(self, run_folder: Callable, tmp_path: Path) -> None:
        run_folder("a")
        (tmp_path / "runs" / "notes").mkdir()
        (tmp_path / "runs" / "file.txt").touch()
        assert [run.run_id for run in list_runs(tmp_path / "runs")[0]] == ["a"]


class TestTheRunsFolder:
    @pytest.mark.parametrize(("variable", "folder"), [(None, "runs"), ("", "runs"), ("elsewhere", "elsewhere")])
    def test_is_where_the_variable_says_or_runs_in_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, folder: str
    ) -> None:
        monkeypatch.delenv("HOSTCORE_RUNS_DIR", raising=False)
        if variable is not None:
            monkeypatch.setenv("HOSTCORE_RUNS_DIR", variable)
        monkeypatch.chdir(tmp_path)
        assert runs_dir() == tmp_path / folder

    def test_never_takes_a_run_that_exists(self, run_folder: Callable) -> None:
        run = run_folder()
        with pytest.raises(FileExistsError):
            run.directory.make()
