"""Opening a run: a new one, or the next attempt of one that exists. A run is never overwritten."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt, newest_attempt
from hostcore.runs.control import read_cancel, request_cancel
from hostcore.runs.launch import Launch
from hostcore.runs.lease import Lease, ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.supervisor import opening as opening_module
from hostcore.supervisor.opening import Opening, RunConflict, examine_run, open_run
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.writable import RunUnwritable
from hostcore_hookspecs import LaunchHandle


def test_a_new_run_gets_its_directory_attempt_1_and_a_lease_and_leaves_nothing_when_it_is_withdrawn(
    plan: Callable,
) -> None:
    opened = open_run(plan())
    assert (opened.attempt, opened.is_new, opened.parent) == (1, True, "")
    lease = Lease.read(opened.directory.lease)
    assert (lease.process, lease.attempt) == (ProcessIdentity.current(), 1)
    assert newest_attempt(opened.directory.attempts) == 1
    opened.withdraw()
    assert not opened.directory.path.exists()


def test_an_attempt_whose_run_directory_was_removed_is_withdrawn_without_another_error(
    plan: Callable, past: Callable
) -> None:
    past(plan()).attempt()
    opened = open_run(plan())
    shutil.rmtree(opened.directory.path)
    opened.withdraw()
    assert not opened.directory.path.exists()


def test_a_run_directory_that_is_a_link_is_used_and_stays_with_its_folder(
    plan: Callable, past: Callable, tmp_path: Path
) -> None:
    """To a folder on a larger disk, for instance."""
    target, link = tmp_path / "disk" / "for-a", plan().directory.path
    link.parent.mkdir()
    link.symlink_to(target)
    with pytest.raises(RunUnwritable, match=f"is a link to {target}, which does not exist"):
        open_run(plan())
    target.mkdir(parents=True)
    open_run(plan()).withdraw()
    assert list(target.iterdir()) == []
    past(plan()).attempt()
    assert (target / "attempts" / "1.json").exists()
    assert open_run(plan()).attempt == 2
    assert link.is_symlink()


def test_a_run_from_a_checkpoint_of_another_must_have_a_run_id_of_its_own(plan: Callable, past: Callable) -> None:
    past(other := plan(run_id="b")).attempt()
    past(plan()).attempt()
    with pytest.raises(RunConflict, match="the run 'a' exists already") as caught:
        open_run(plan(resume_from_checkpoint=str(past(other).checkpoint(3))))
    assert caught.value.pointer == "/run_id"


class TestARunThatExists:
    def test_is_as_it_was_when_an_attempt_is_withdrawn(self, plan: Callable, past: Callable) -> None:
        run = past(plan()).ended("preempted")
        run.checkpoint(3)
        before = run.tree()
        opened = open_run(plan(max_steps=50))
        RunRecord(job=plan(max_steps=50).spec.to_json(), job_dir="/elsewhere").write(opened.directory.record)
        opened.directory.rank_output(2, 0).write_text("x")
        opened.directory.contract(2, 0).write_text("{}")
        request_cancel(opened.directory, 2, requested_by="user", reason="too late")
        opened.withdraw()
        assert read_cancel(opened.directory, 2) is None
        (opened.directory.path / "control").rmdir()
        assert run.tree() == before

    def test_keeps_its_checkpoints_when_an_attempt_is_withdrawn_whatever_its_number(
        self, plan: Callable, past: Callable
    ) -> None:
        """A run directory that was copied without its attempts."""
        run = past(plan())
        run.attempt()
        run.checkpoint(3)
        (run.plan.directory.attempts / "1.json").unlink()
        opened = open_run(plan())
        assert (opened.attempt, opened.is_new) == (1, False)
        opened.withdraw()
        assert (run.plan.checkpoints_dir / "step-000003.json").exists()

    def test_that_must_have_a_checkpoint_goes_on_if_it_has_one(self, plan: Callable, past: Callable) -> None:
        past(plan()).attempt()
        with pytest.raises(RunConflict, match="has no checkpoint to resume from"):
            open_run(plan(resume_from_checkpoint=True))
        past(plan()).checkpoint(3)
        assert open_run(plan(resume_from_checkpoint=True)).attempt == 2

    @pytest.mark.parametrize(
        "keys", [{"max_steps": 99}, {"metric_every": 1}, {"checkpoint_every": 3}, {"labels": {"a": "b"}}]
    )
    def test_of_the_same_job_with_other_limits_goes_on(self, plan: Callable, past: Callable, keys: dict) -> None:
        past(plan()).attempt()
        assert open_run(plan(**keys)).attempt == 2

    @pytest.mark.parametrize("when", ["meanwhile", "a moment ago"])
    def test_that_another_process_claims_is_not_claimed_again(
        self, plan: Callable, past: Callable, monkeypatch: pytest.MonkeyPatch, when: str
    ) -> None:
        """Both have seen a dead lease and the other is quicker; or its lease is about to be written."""
        past(plan()).attempt()
        real = examine_run

        def overtaken(*args: object, **options: object) -> object:
            found = real(*args, **options)
            claim_attempt(plan().directory.attempts, 2, process=ProcessIdentity.current(), started_ms=0)
            return found

        if when == "meanwhile":
            monkeypatch.setattr(opening_module, "examine_run", overtaken)
        else:
            claim_attempt(plan().directory.attempts, 2, process=ProcessIdentity.current(), started_ms=now_ms())
        with pytest.raises(RunConflict, match="attempt 2 of run 'a' was just started by another process"):
            open_run(plan())
        assert newest_attempt(plan().directory.attempts) == 2


class TestASubmittedRun:
    """Its record and its launch are there; an attempt is not."""

    @pytest.fixture
    def submitted(self, plan: Callable, living: ProcessIdentity) -> Callable:
        """``submitted(max_steps=20)``: the plan of a run whose launched supervisor lives, and has not begun."""

        def make(*, gone: bool = False, **keys: object) -> RunPlan:
            made = plan(**keys)
            directory = made.directory
            if not directory.path.exists():
                directory.make()
            RunRecord(job=made.spec.to_json(), job_dir="/").write(directory.record)
            start = living.start_time - gone  # another process had its number
            details = {
                "pid": living.pid,
                "started": f"{living.boot_id} {start}",
                "host": living.host,
                "pid_namespace": living.pid_namespace,
                "run_dir": str(directory.path),
                "log": "",
                "earlier_result": None,
            }
            handle = LaunchHandle(launcher="local", id=str(living.pid), details=details)
            attempt = newest_attempt(directory.attempts) + 1
            Launch(attempt=attempt, submitted_ms=now_ms(), handle=handle).write(directory.launch)
            return made

        return make

    def test_is_begun_by_its_supervisor_alone_which_finds_what_was_asked_of_it(self, submitted: Callable) -> None:
        plan = submitted()
        with pytest.raises(RunConflict, match="'a' is submitted: its supervisor is about to begin attempt 1") as caught:
            open_run(plan)
        assert "hostcore cancel a" in caught.value.hint
        assert newest_attempt(plan.directory.attempts) == 0
        request_cancel(plan.directory, 1, requested_by="user", reason="a mistake")
        opened = open_run(plan, launched=True)
        assert (opened.attempt, opened.is_new, opened.submitted) == (1, False, True)
        assert read_cancel(plan.directory, 1).reason == "a mistake"

    def test_is_anybody_s_once_its_supervisor_has_died_whoever_cancelled_it(self, submitted: Callable) -> None:
        plan = submitted(gone=True)
        request_cancel(plan.directory, 1, requested_by="user", reason="a mistake")
        opened = open_run(plan)
        assert (opened.attempt, opened.submitted) == (1, False)
        assert read_cancel(plan.directory, 1) is None

    def test_is_nobody_s_to_wait_for_once_it_has_begun(self, submitted: Callable, past: Callable) -> None:
        plan = submitted(gone=True)
        past(plan).attempt()
        opened = open_run(plan, launched=True)
        assert (opened.attempt, opened.submitted) == (2, False)

    def test_that_was_cancelled_in_the_meantime_is_left_alone_by_its_supervisor(
        self, submitted: Callable, past: Callable
    ) -> None:
        plan = submitted(gone=True)
        past(plan).attempt()
        result = past(plan).result("cancelled")
        assert open_run(plan, launched=True) == result
        assert open_run(plan).attempt == 2

    def test_goes_on_where_a_finished_run_is_to_be_longer(
        self, plan: Callable, submitted: Callable, past: Callable
    ) -> None:
        past(plan()).ended("succeeded")
        assert open_run(submitted(max_steps=50), launched=True).attempt == 2


class TestAFinishedRun:
    @pytest.mark.parametrize(
        ("first", "then", "goes_on"),
        [
            ({"max_steps": 10}, {"max_steps": 11}, True),
            ({"max_steps": 10}, {"max_steps": 9}, False),
            ({"max_steps": 0, "epochs": 2}, {"max_steps": 0, "epochs": 3}, True),
            ({"max_steps": 0, "epochs": 2}, {"max_steps": 5, "epochs": 2}, False),
            ({"max_steps": 5, "epochs": 2}, {"max_steps": 5}, True),
            ({"max_steps": 5, "epochs": 2}, {"max_steps": 0, "epochs": 2}, True),
            ({"max_steps": 0}, {"max_steps": 0, "epochs": 1}, False),
            ({"max_steps": 0}, {"max_steps": 7}, True),
        ],
        ids=str,
    )
    def test_goes_on_when_more_is_asked_for(
        self, plan: Callable, past: Callable, first: dict, then: dict, goes_on: bool
    ) -> None:
        past(plan(mock_batches=["a"], **first)).ended("succeeded")
        assert isinstance(open_run(plan(mock_batches=["a"], **then)), Opening) is goes_on

    def test_can_still_be_extended_after_an_extension_that_was_withdrawn_and_one_that_died(
        self, plan: Callable, past: Callable
    ) -> None:
        past(plan()).ended("succeeded")
        opened = open_run(longer := plan(max_steps=50))
        RunRecord(job=longer.spec.to_json(), job_dir="/").write(opened.directory.record)
        opened.withdraw()
        past(longer).attempt(2)  # no result: its supervisor was killed
        assert open_run(longer).attempt == 3


@pytest.mark.parametrize("left", [[], ["attempts"], ["attempts", "config", "logs", "checkpoints", "samples"]])
def test_a_run_whose_first_start_was_killed_before_its_record_begins_anew(plan: Callable, left: list[str]) -> None:
    made = plan()
    for name in left:
        (made.directory.path / name).mkdir(parents=True)
    made.directory.path.mkdir(parents=True, exist_ok=True)
    if "config" in left:
        (made.directory.attempts / "1.json").touch()  # torn
        (made.directory.record.parent / ".run.json.7.tmp").touch()
    opened = open_run(made)
    assert (opened.attempt, opened.is_new) == (1, True)
