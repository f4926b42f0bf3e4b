"""Opening a run: a new one, or the next attempt of one that exists. A run is never overwritten."""

import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from hostcore.checkpoints.errors import CheckpointError
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


class TestANewRun:
    def test_gets_its_directory_attempt_1_and_a_lease_of_this_process(self, plan: Callable) -> None:
        opened = open_run(plan())
        assert (opened.attempt, opened.is_new, opened.parent) == (1, True, "")
        lease = Lease.read(opened.directory.lease)
        assert (lease.process, lease.attempt) == (ProcessIdentity.current(), 1)
        assert newest_attempt(opened.directory.attempts) == 1

    def test_leaves_nothing_when_it_is_withdrawn(self, plan: Callable) -> None:
        opened = open_run(plan())
        opened.withdraw()
        assert not opened.directory.path.exists()

    def test_that_must_be_resumed_is_an_error(self, plan: Callable) -> None:
        with pytest.raises(RunConflict, match="there is no run 'a' to resume") as caught:
            open_run(plan(resume_from_checkpoint=True))
        assert caught.value.pointer == "/resume_from_checkpoint"
        assert not plan().directory.path.exists()

    def test_is_not_made_by_looking(self, plan: Callable) -> None:
        assert examine_run(plan()) is None
        assert not plan().directory.path.parent.exists()

    def test_where_a_folder_of_somebody_else_lies_is_an_error(self, plan: Callable) -> None:
        plan().directory.path.mkdir(parents=True)
        (plan().directory.path / "thesis.tex").write_text("x")
        with pytest.raises(RunConflict, match="'a' exists in the runs folder but is no run of hostcore's"):
            open_run(plan())
        assert [path.name for path in plan().directory.path.iterdir()] == ["thesis.tex"]

    def test_whose_runs_folder_is_a_file_is_an_error_that_says_so(self, plan: Callable, tmp_path: Path) -> None:
        (tmp_path / "runs").write_text("x")
        with pytest.raises(RunUnwritable, match=r"cannot be written: .*is not a folder") as caught:
            open_run(plan())
        assert "HOSTCORE_RUNS_DIR" in caught.value.hint


def test_an_attempt_whose_run_directory_was_removed_is_withdrawn_without_another_error(
    plan: Callable, past: Callable
) -> None:
    past(plan()).attempt()
    opened = open_run(plan())
    assert not opened.is_new
    shutil.rmtree(opened.directory.path)
    opened.withdraw()
    assert not opened.directory.path.exists()


class TestARunDirectoryThatIsALink:
    """To a folder on a larger disk, for instance."""

    @pytest.fixture
    def target(self, plan: Callable, tmp_path: Path) -> Path:
        target = tmp_path / "disk" / "for-a"
        plan().directory.path.parent.mkdir()
        plan().directory.path.symlink_to(target)
        return target

    def test_to_an_empty_folder_is_used(self, plan: Callable, target: Path) -> None:
        target.mkdir(parents=True)
        opened = open_run(plan())
        assert (opened.attempt, opened.is_new) == (1, True)
        assert (target / "attempts" / "1.json").exists()
        assert plan().directory.path.is_symlink()

    def test_stays_with_its_folder_when_the_run_is_withdrawn(self, plan: Callable, target: Path) -> None:
        target.mkdir(parents=True)
        open_run(plan()).withdraw()
        assert plan().directory.path.is_symlink()
        assert list(target.iterdir()) == []

    def test_to_a_run_goes_on_with_it(self, plan: Callable, past: Callable, target: Path) -> None:
        target.mkdir(parents=True)
        past(plan()).attempt()
        assert open_run(plan()).attempt == 2

    def test_to_nothing_is_an_error_that_says_so(self, plan: Callable, target: Path) -> None:
        with pytest.raises(RunUnwritable, match=f"is a link to {target}, which does not exist"):
            open_run(plan())
        assert plan().directory.path.is_symlink()


class TestARunFromACheckpointOfAnother:
    @pytest.fixture
    def other(self, plan: Callable, past: Callable) -> Path:
        """A checkpoint of a run ``b``."""
        run = past(plan(run_id="b"))
        run.attempt()
        return run.checkpoint(3)

    def test_begins_there_and_remembers_it(self, plan: Callable, other: Path) -> None:
        opened = open_run(plan(resume_from_checkpoint=str(other)))
        assert (opened.parent, opened.is_new) == (str(other), True)

    def test_may_name_the_commit_record(self, plan: Callable, other: Path) -> None:
        record = f"{other}.json"
        assert open_run(plan(resume_from_checkpoint=record)).parent == record

    @pytest.mark.parametrize("name", ["runs/b/checkpoints/step-000004", "runs/b", "nowhere"])
    def test_that_is_not_there_is_an_error_and_makes_nothing(
        self, plan: Callable, other: Path, tmp_path: Path, name: str
    ) -> None:
        with pytest.raises(CheckpointError) as caught:
            open_run(plan(resume_from_checkpoint=str(tmp_path / name)))
        assert caught.value.pointer == "/resume_from_checkpoint"
        assert not plan().directory.path.exists()

    def test_must_have_a_run_id_of_its_own(self, plan: Callable, past: Callable, other: Path) -> None:
        past(plan()).attempt()
        with pytest.raises(RunConflict, match="the run 'a' exists already") as caught:
            open_run(plan(resume_from_checkpoint=str(other)))
        assert caught.value.pointer == "/run_id"

    def test_remembers_it_in_every_attempt(self, plan: Callable, past: Callable, other: Path) -> None:
        past(plan(resume_from_checkpoint=str(other))).attempt()
        opened = open_run(plan())
        assert (opened.attempt, opened.parent) == (2, str(other))


class TestARunThatExists:
    def test_is_as_it_was_when_an_attempt_is_withdrawn(self, plan: Callable, past: Callable) -> None:
        run = past(plan())
        run.attempt()
        run.checkpoint(3)
        run.result("preempted")
        before = run.tree()
        opened = open_run(plan(max_steps=50))
        RunRecord(job=plan(max_steps=50).spec.to_json(), job_dir="/elsewhere").write(opened.directory.record)
        opened.directory.rank_output(2, 0).write_text("x")
        opened.directory.contract(2, 0).write_text("{}")
        opened.withdraw()
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

    def test_that_must_be_new_is_an_error(self, plan: Callable, past: Callable) -> None:
        past(plan()).attempt()
        with pytest.raises(RunConflict, match="the run 'a' exists already"):
            open_run(plan(resume_from_checkpoint=False))

    def test_that_must_have_a_checkpoint_and_has_none_is_an_error(self, plan: Callable, past: Callable) -> None:
        past(plan()).attempt()
        with pytest.raises(RunConflict, match="has no checkpoint to resume from"):
            open_run(plan(resume_from_checkpoint=True))

    def test_that_must_have_a_checkpoint_and_has_one_goes_on(self, plan: Callable, past: Callable) -> None:
        run = past(plan())
        run.attempt()
        run.checkpoint(3)
        assert open_run(plan(resume_from_checkpoint=True)).attempt == 2

    @pytest.mark.parametrize(
        ("keys", "named"),
        [
            ({"seed": 1}, ["/seed: 0 -> 1"]),
            ({"trainer": "elsewhere:Trainer"}, ["/trainer"]),
            ({"hyperparams": {"lr": 0.1}}, ["/hyperparams/lr"]),
            ({"mock_batches": [1]}, ["/mock_batches"]),
            ({"callbacks": ["somewhere:Callback"], "seed": 1}, ["/seed", "/callbacks/0"]),
        ],
        ids=str,
    )
    def test_of_another_job_is_an_error_that_names_the_keys_and_changes_nothing(
        self, plan: Callable, past: Callable, keys: dict, named: list[str]
    ) -> None:
        run = past(plan())
        run.attempt()
        run.checkpoint(3)
        before = run.tree()
        with pytest.raises(RunConflict, match="belongs to another job") as caught:
            open_run(plan(**keys))
        assert all(place in caught.value.message for place in named)
        assert run.tree() == before

    @pytest.mark.parametrize(
        "keys", [{"max_steps": 99}, {"metric_every": 1}, {"checkpoint_every": 3}, {"labels": {"a": "b"}}]
    )
    def test_of_the_same_job_with_other_limits_goes_on(self, plan: Callable, past: Callable, keys: dict) -> None:
        past(plan()).attempt()
        assert open_run(plan(**keys)).attempt == 2

    def test_that_is_running_is_an_error_that_says_where_and_changes_nothing(
        self, plan: Callable, past: Callable, living: ProcessIdentity
    ) -> None:
        run = past(plan())
        run.attempt()
        lease = Lease.read(run.plan.directory.lease)
        attrs.evolve(lease, process=living, step=7).write(run.plan.directory.lease)
        before = run.tree()
        with pytest.raises(RunConflict, match=rf"is running \(process {living.pid} on .*, attempt 1, step 7\)"):
            open_run(plan())
        assert run.tree() == before

    def test_that_two_start_at_once_is_opened_by_one(
        self, plan: Callable, past: Callable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both have seen a dead lease; the other one is quicker to claim."""
        past(plan()).attempt()
        real = examine_run

        def overtaken(*args: object, **options: object) -> object:
            found = real(*args, **options)
            claim_attempt(plan().directory.attempts, 2, process=ProcessIdentity.current(), started_ms=0)
            return found

        monkeypatch.setattr(opening_module, "examine_run", overtaken)
        with pytest.raises(RunConflict, match="attempt 2 of run 'a' was just started by another process"):
            open_run(plan())
        assert newest_attempt(plan().directory.attempts) == 2

    def test_that_was_claimed_a_moment_ago_is_not_claimed_again(self, plan: Callable, past: Callable) -> None:
        """Its lease is about to be written; what is there is that of the attempt before."""
        past(plan()).attempt()
        claim_attempt(plan().directory.attempts, 2, process=ProcessIdentity.current(), started_ms=now_ms())
        with pytest.raises(RunConflict, match="attempt 2 of run 'a' was just started by another process"):
            open_run(plan())
        assert newest_attempt(plan().directory.attempts) == 2

    def test_with_a_damaged_record_is_an_error_that_names_it(self, plan: Callable, past: Callable) -> None:
        run = past(plan())
        run.attempt()
        run.plan.directory.record.write_text("{")
        with pytest.raises(Exception, match="not a JSON document") as caught:
            open_run(plan())
        assert caught.value.file == str(run.plan.directory.record)


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

    def test_is_begun_by_the_supervisor_that_was_launched(self, submitted: Callable) -> None:
        opened = open_run(submitted(), launched=True)
        assert (opened.attempt, opened.is_new, opened.submitted) == (1, False, True)

    def test_is_refused_to_everybody_else(self, submitted: Callable) -> None:
        with pytest.raises(RunConflict, match="'a' is submitted: its supervisor is about to begin attempt 1") as caught:
            open_run(submitted())
        assert "hostcore cancel a" in caught.value.hint
        assert newest_attempt(submitted().directory.attempts) == 0

    def test_is_anybody_s_once_its_supervisor_has_died(self, submitted: Callable) -> None:
        opened = open_run(submitted(gone=True))
        assert (opened.attempt, opened.submitted) == (1, False)

    def test_is_nobody_s_to_wait_for_once_it_has_begun(self, submitted: Callable, past: Callable) -> None:
        plan = submitted(gone=True)
        past(plan).attempt()
        opened = open_run(plan, launched=True)
        assert (opened.attempt, opened.submitted) == (2, False)

    def test_keeps_what_was_asked_of_it_before_it_began(self, submitted: Callable) -> None:
        plan = submitted()
        request_cancel(plan.directory, 1, requested_by="user", reason="a mistake")
        open_run(plan, launched=True)
        assert read_cancel(plan.directory, 1).reason == "a mistake"

    def test_that_nobody_began_and_somebody_cancelled_can_still_be_started(self, submitted: Callable) -> None:
        plan = submitted(gone=True)
        request_cancel(plan.directory, 1, requested_by="user", reason="a mistake")
        open_run(plan)
        assert read_cancel(plan.directory, 1) is None

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
        run = past(plan())
        run.attempt()
        run.result("succeeded")
        assert open_run(submitted(max_steps=50), launched=True).attempt == 2


def test_a_request_to_cancel_does_not_outlive_an_attempt_that_was_withdrawn(plan: Callable, past: Callable) -> None:
    run = past(plan())
    run.attempt()
    run.result("preempted")
    opened = open_run(plan())
    request_cancel(opened.directory, 2, requested_by="user", reason="too late")
    opened.withdraw()
    assert read_cancel(open_run(plan(), launched=True).directory, 2) is None


class TestAFinishedRun:
    def test_is_not_opened_again(self, plan: Callable, past: Callable) -> None:
        run = past(plan())
        run.attempt()
        result = run.result("succeeded")
        before = run.tree()
        assert open_run(plan()) == result
        assert run.tree() == before

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
        run = past(plan(mock_batches=["a"], **first))
        run.attempt()
        run.result("succeeded")
        assert isinstance(open_run(plan(mock_batches=["a"], **then)), Opening) is goes_on

    @pytest.mark.parametrize("status", ["failed", "cancelled", "preempted"])
    def test_that_did_not_succeed_goes_on(self, plan: Callable, past: Callable, status: str) -> None:
        run = past(plan())
        run.attempt()
        run.result(status)
        assert open_run(plan()).attempt == 2

    def test_whose_extension_died_goes_on(self, plan: Callable, past: Callable) -> None:
        run = past(plan())
        run.attempt()
        run.result("succeeded")
        past(plan(max_steps=50)).attempt(2)  # no result: its supervisor was killed
        assert open_run(plan(max_steps=50)).attempt == 3

    def test_whose_extension_was_withdrawn_can_still_be_extended(self, plan: Callable, past: Callable) -> None:
        run = past(plan())
        run.attempt()
        run.result("succeeded")
        opened = open_run(plan(max_steps=50))
        RunRecord(job=plan(max_steps=50).spec.to_json(), job_dir="/").write(opened.directory.record)
        opened.withdraw()
        assert open_run(plan(max_steps=50)).attempt == 2


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
