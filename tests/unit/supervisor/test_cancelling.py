"""Cancelling in states that a command meets by chance alone. No supervisor lives here: the tests do what one would do.

``tests/integration/runs/test_control.py`` has the command on real runs.
"""

import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from hostcore.events.writer import RankLog, now_ms
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.control import read_cancel, request_cancel
from hostcore.runs.launch import Launch
from hostcore.runs.lease import ProcessIdentity
from hostcore.runs.result import RunResult
from hostcore.supervisor import cancelling as cancelling_module
from hostcore.supervisor.abandoned import cancel_abandoned
from hostcore.supervisor.cancelling import ask_to_end, cancel
from hostcore.supervisor.opening import claim, open_run
from hostcore.supervisor.writable import RunUnwritable
from hostcore_hookspecs import events
from hostcore_hookspecs.launcher import LaunchHandle

HOUR_MS = 3_600_000


def _never(_: float) -> None:
    raise AssertionError("there is nothing to wait for")


def _events(run: object) -> list[str]:
    return [orjson.loads(line)["event"] for line in run.plan.directory.events.read_bytes().splitlines()]


class TestALostRun:
    @pytest.fixture
    def lost(self, plan: Callable, past: Callable) -> object:
        """Its supervisor was heard of an hour ago."""
        run = past(plan())
        run.attempt()
        run.lease(renewed_ms=now_ms() - HOUR_MS)
        return run

    def test_is_given_the_time_to_write_its_last_checkpoint(self, lost: object) -> None:
        """Its worker lives on: once a higher attempt is claimed, it could commit nothing any more."""
        lost.lease(renewed_ms=now_ms())

        def orphan(_: float) -> None:
            assert newest_attempt(lost.plan.directory.attempts) == 1
            lost.checkpoint(9)
            log = RankLog(lost.plan.directory.rank_events(1, 0))
            log.write(events.RunPreempted(reason="the supervisor is gone"), step=9, epoch=0)
            log.close()

        done = cancel(lost.plan.directory, reason="not needed", sleep=orphan)
        assert (done.status, done.attempt, done.requested) == ("cancelled", 2, True)
        result = done.result
        assert (result.status, result.step, result.final_checkpoint) == ("cancelled", 9, "checkpoints/step-000009")
        assert (result.exit_code, result.requested_by) == (130, "user")
        assert result.reason == "not needed; its supervisor was gone"
        assert _events(lost) == ["run_preempted", "run_cancelled"]
        assert not lost.plan.directory.lease.exists()

    def test_is_not_waited_for_by_force(self, lost: object) -> None:
        lost.lease(renewed_ms=now_ms())
        assert cancel(lost.plan.directory, force=True, sleep=_never).status == "cancelled"

    def test_that_somebody_takes_at_the_same_instant_is_cancelled_once(
        self, lost: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another cancel claims the attempt first; this one waits for the end that it writes."""
        directory = lost.plan.directory

        def overtaken(*args: object, **options: object) -> RunResult:
            monkeypatch.undo()
            claim(directory, 2)
            return cancel_abandoned(*args, **options)

        def the_other_writes_its_end(_: float) -> None:
            assert read_cancel(directory, 2) is not None
            lost.result("cancelled", attempt=2)

        monkeypatch.setattr(cancelling_module, "cancel_abandoned", overtaken)
        done = cancel(directory, sleep=the_other_writes_its_end)
        assert (done.status, done.attempt) == ("cancelled", 2)
        assert newest_attempt(directory.attempts) == 2


class TestARunningRun:
    @pytest.fixture
    def running(self, plan: Callable, past: Callable, living: ProcessIdentity) -> object:
        run = past(plan())
        run.attempt()
        run.lease(process=living)
        return run

    def test_may_end_otherwise_before_it_hears(self, running: object) -> None:
        done = cancel(running.plan.directory, sleep=lambda _: running.result("succeeded"))
        assert (done.status, done.requested) == ("succeeded", True)

    def test_that_is_started_again_meanwhile_is_not_asked_again(self, running: object, living: ProcessIdentity) -> None:
        def somebody_resumes(_: float) -> None:
            running.result("cancelled")
            open_run(running.plan)
            running.lease(process=living)

        done = cancel(running.plan.directory, sleep=somebody_resumes)
        assert (done.status, done.attempt, done.result) == ("running", 1, None)
        assert read_cancel(running.plan.directory, 2) is None

    def test_whose_supervisor_dies_meanwhile_is_cancelled_all_the_same(
        self, running: object, living: ProcessIdentity
    ) -> None:
        def supervisor_dies(_: float) -> None:
            os.kill(living.pid, 9)
            running.lease(renewed_ms=0)

        done = cancel(running.plan.directory, sleep=supervisor_dies)
        assert (done.status, done.attempt, done.requested) == ("cancelled", 2, True)

    def test_whose_folder_cannot_be_written_is_an_error_that_says_whose_it_is(self, running: object) -> None:
        (running.plan.directory.path / "control").write_text("in the way")
        with pytest.raises(RunUnwritable, match="the run 'a' cannot be cancelled: ") as caught:
            cancel(running.plan.directory, sleep=_never)
        assert caught.value.code == "run.unwritable"


def test_a_submitted_run_is_ended_once_it_is_clear_that_nobody_will_begin_it(plan: Callable, past: Callable) -> None:
    """Launched just now by somebody who has not written the handle yet; and never launched."""
    run = past(plan())
    directory = run.plan.directory
    run.attempt()
    (directory.attempts / "1.json").unlink()
    directory.lease.unlink()
    Launch(attempt=1, submitted_ms=now_ms()).write(directory.launch)
    done = cancel(directory, sleep=lambda _: os.utime(directory.launch, (0, 0)))
    assert (done.status, done.attempt, done.result.step) == ("cancelled", 1, 0)
    assert _events(run) == ["run_cancelled"]
    assert isinstance(open_run(plan(), launched=True), RunResult), "its supervisor comes after all"
    directory.launch.unlink()
    directory.result.unlink()
    (directory.attempts / "1.json").unlink()
    assert cancel(directory, sleep=_never).status == "cancelled"


def test_a_stale_request_does_not_hit_the_next_attempt(plan: Callable, past: Callable) -> None:
    run = past(plan())
    run.attempt()
    request_cancel(run.plan.directory, 1, requested_by="user", reason="then")
    run.result("cancelled")
    assert read_cancel(open_run(plan()).directory, 2) is None


def test_a_service_writes_the_wish_down_and_looks_at_nothing_that_runs_may_have_written(
    plan: Callable, past: Callable, tmp_path: Path
) -> None:
    """The record and the launch name a launcher that whoever looks at the run is to call."""
    run = past(plan())
    run.attempt()
    directory = run.plan.directory
    handle = LaunchHandle(launcher="evil:Launcher", id="1")
    Launch(attempt=1, submitted_ms=now_ms(), sees_run_dir=False, handle=handle).write(directory.launch)
    record = orjson.loads(directory.record.read_bytes())
    record["job"]["launcher"] = {"use": "evil:Launcher"}
    directory.record.write_bytes(orjson.dumps({**record, "job_dir": str(directory.path)}))
    (directory.path / "evil.py").write_text("raise SystemExit('it was imported')")
    before = run.tree()
    ask_to_end(directory, 1, reason="enough")
    after = run.tree()
    assert set(after) - set(before) >= {str(directory.cancel_request(1).relative_to(directory.path))}
    assert all(after[path] == content for path, content in before.items())
    asked = read_cancel(directory, 1)
    assert (asked.requested_by, asked.reason, asked.force) == ("user", "enough", False)

    (directory.path / "control").rename(tmp_path / "elsewhere")
    (directory.path / "control").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunUnwritable, match="a link is in the way"):
        ask_to_end(directory, 1)
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1
