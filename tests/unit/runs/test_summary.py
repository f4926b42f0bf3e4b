"""What a run looks like from outside, derived from its directory alone."""

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.directory import RunDirectory, runs_dir
from hostcore.runs.lease import Lease, ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.runs.summary import UnknownRun, list_runs, summarize


class TestTheStatusOfARun:
    def test_is_running_while_its_supervisor_lives(self, run_folder: Callable, holder) -> None:
        run = run_folder()
        run.attempt(1)
        run.lease(holder.identity, step=7)
        summary = summarize(run.directory)
        assert (summary.status, summary.step, summary.attempt, summary.ended_ms) == ("running", 7, 1, None)

    def test_is_lost_when_its_supervisor_died_without_a_result(self, run_folder: Callable, holder) -> None:
        run = run_folder()
        run.attempt(1)
        run.lease(holder.identity, step=7)
        holder.process.kill()
        holder.process.wait()
        summary = summarize(run.directory)
        assert (summary.status, summary.step, summary.ended_ms) == ("lost", 7, None)

    @pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled", "preempted"])
    def test_is_that_of_its_result(self, run_folder: Callable, status: str) -> None:
        run = run_folder()
        run.attempt(1)
        run.result(status, step=12, ended_ms=5000)
        summary = summarize(run.directory)
        assert (summary.status, summary.step, summary.ended_ms) == (status, 12, 5000)

    def test_is_running_when_it_was_resumed_after_an_end(self, run_folder: Callable, holder) -> None:
        run = run_folder()
        run.attempt(1)
        run.result("preempted")
        run.attempt(2)
        run.lease(holder.identity, attempt=2, step=13)
        summary = summarize(run.directory)
        assert (summary.status, summary.step, summary.attempt, summary.ended_ms) == ("running", 13, 2, None)

    def test_is_lost_when_the_attempt_after_an_end_died(self, run_folder: Callable) -> None:
        run = run_folder()
        run.attempt(1)
        run.result("succeeded")
        run.attempt(2)
        summary = summarize(run.directory)
        assert (summary.status, summary.attempt) == ("lost", 2)

    def test_is_that_of_its_result_though_a_dead_lease_is_left(self, run_folder: Callable, holder) -> None:
        run = run_folder()
        run.attempt(1)
        run.result("succeeded")
        run.lease(holder.identity)
        holder.process.kill()
        holder.process.wait()
        assert summarize(run.directory).status == "succeeded"

    def test_is_submitted_before_the_first_attempt(self, run_folder: Callable) -> None:
        summary = summarize(run_folder().directory)
        assert (summary.status, summary.attempt, summary.step, summary.ended_ms) == ("submitted", 0, 0, None)

    def test_is_running_in_the_moment_between_claim_and_lease(self, run_folder: Callable, holder) -> None:
        run = run_folder()
        claim_attempt(run.directory.attempts, 1, process=holder.identity, started_ms=now_ms())
        assert summarize(run.directory).status == "running"
        holder.process.kill()
        holder.process.wait()
        assert summarize(run.directory).status == "lost"

    def test_shows_the_step_of_the_attempt_before_until_the_next_has_told_of_one(
        self, run_folder: Callable, holder
    ) -> None:
        run = run_folder()
        run.attempt(1)
        run.result("preempted", step=12)
        run.attempt(2)
        run.lease(holder.identity, attempt=2, step=0)
        assert summarize(run.directory).step == 12

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

    def test_counts_the_steps_of_epochs(self, run_folder: Callable) -> None:
        run = run_folder(max_steps=0)
        record = RunRecord.read(run.directory.record)
        attrs.evolve(record, total_steps=300).write(run.directory.record)
        assert summarize(run.directory).max_steps == 300


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
    def test_begins_with_the_newest(self, run_folder: Callable, tmp_path: Path) -> None:
        for run_id, submitted in (("middle", 2), ("newest", 3), ("oldest", 1)):
            run_folder(run_id, submitted_ms=submitted)
        runs, broken = list_runs(tmp_path / "runs")
        assert [run.run_id for run in runs] == ["newest", "middle", "oldest"]
        assert broken == []

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

    def test_of_a_folder_that_does_not_exist_is_empty(self, tmp_path: Path) -> None:
        assert list_runs(tmp_path / "none") == ([], [])


class TestTheRunsFolder:
    def test_is_runs_in_the_working_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HOSTCORE_RUNS_DIR", raising=False)
        monkeypatch.chdir(tmp_path)
        assert runs_dir() == tmp_path / "runs"

    def test_is_where_the_variable_says(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOSTCORE_RUNS_DIR", "elsewhere")
        assert runs_dir() == tmp_path / "elsewhere"

    def test_is_the_usual_one_when_the_variable_is_empty(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOSTCORE_RUNS_DIR", "")
        assert runs_dir() == tmp_path / "runs"

    def test_never_takes_a_run_that_exists(self, run_folder: Callable) -> None:
        run = run_folder()
        with pytest.raises(FileExistsError):
            run.directory.make()

    def test_is_asked_for_the_process_that_asks(self) -> None:
        assert ProcessIdentity.current().is_here
