"""Submitting a run: what a launcher is given, and what stays when it cannot launch."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore.plugins.errors import PluginError
from hostcore.plugins.installed import Discovered
from hostcore.runs.launch import Launch
from hostcore.runs.record import RunRecord
from hostcore.supervisor import submit as submit_module
from hostcore.supervisor.opening import RunConflict
from hostcore.supervisor.submit import dry_run, submit
from hostcore_hookspecs import FatalError, LaunchContext, LaunchHandle, LaunchPlan, TransientError


class Launcher:
    """Stands for a launcher that starts nothing: its own tests start processes."""

    def __init__(self, error: Exception | None = None, *, sees_run_dir: bool = True) -> None:
        self.sees_run_dir = sees_run_dir
        self.contexts: list[LaunchContext] = []
        self._error = error

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        return LaunchPlan(summary="a pod in the cloud")

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        self.contexts.append(ctx)
        if self._error:
            raise self._error
        return LaunchHandle(launcher="cloud", id="pod-1")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Launcher]:
    """``given(error)``: the launcher that jobs get."""

    def make(error: Exception | None = None, *, sees_run_dir: bool = True) -> Launcher:
        launcher = Launcher(error, sees_run_dir=sees_run_dir)
        monkeypatch.setattr(submit_module, "launcher_of", lambda *_, **__: launcher)
        return launcher

    return make


def _submit(plan: Any, told: list[str] | None = None, **how: Any) -> Any:
    return submit(plan, total_steps=10, tell=(told if told is not None else []).append, **how)


def test_a_launcher_is_looked_up_in_what_was_installed_when_the_plan_was_made(plan: Callable) -> None:
    made = plan()
    assert dry_run(made).summary
    with pytest.raises(PluginError) as raised:
        dry_run(attrs.evolve(made, discovered=Discovered(refs=())))
    assert (raised.value.code, raised.value.pointer) == ("plugin.unknown", "/launcher")


class TestANewRun:
    @pytest.mark.parametrize("seen", [True, False])
    def test_is_begun_by_a_command_of_the_same_python_and_travels_where_it_is_not_seen(
        self, plan: Callable, given: Callable, seen: bool
    ) -> None:
        launcher = given(sees_run_dir=seen)
        _submit(plan())
        (context,) = launcher.contexts
        assert context.command[0] == sys.executable
        directory = plan().directory
        if seen:
            assert context.command[-3:] == ["resume", str(directory.path), "--launched"]
            assert (context.run_dir, context.job) == (str(directory.path), plan().job)
        else:
            assert context.command[-2:] == ["run", context.job_path]
            assert context.document["run_id"] == "a"
            assert not {"launcher", "resources"} & set(context.document)
        assert Launch.read(directory.launch).sees_run_dir is seen

    def test_that_was_cut_short_or_got_no_answer_is_launched_under_the_same_id(
        self, plan: Callable, given: Callable
    ) -> None:
        given(TransientError("no answer"))
        with pytest.raises(TransientError):
            _submit(plan(), launch_id="a.1")
        launcher = given()
        assert _submit(plan(), launch_id="a.1").attempt == 1
        launch = plan().directory.launch
        attrs.evolve(Launch.read(launch), handle=None).write(launch)  # as if killed before the answer
        assert _submit(plan(), launch_id="a.1").attempt == 1
        assert [context.launch_id for context in launcher.contexts] == ["a.1", "a.1"]
        with pytest.raises(RunConflict, match="is submitted"):
            _submit(plan(), launch_id="a.2")

    @pytest.mark.parametrize("failures", [2, 3])
    def test_without_an_id_is_tried_three_times_under_one_that_is_made(
        self, plan: Callable, given: Callable, monkeypatch: pytest.MonkeyPatch, failures: int
    ) -> None:
        launcher = given()
        launch, waited, told = launcher.launch, list[float](), list[str]()
        answers = iter([TransientError("no answer")] * failures)

        def answer_late(ctx: LaunchContext) -> LaunchHandle:
            handle = launch(ctx)
            if error := next(answers, None):
                raise error
            return handle

        monkeypatch.setattr(launcher, "launch", answer_late)
        monkeypatch.setattr(submit_module.time, "sleep", waited.append)
        if failures < 3:
            assert _submit(plan(), told).handle.id == "pod-1"
        else:
            with pytest.raises(TransientError, match="no answer"):
                _submit(plan(), told)
            assert not plan().directory.path.exists()
        assert len(launcher.contexts) == 3
        assert len({context.launch_id for context in launcher.contexts}) == 1
        assert waited == [1.0, 4.0]
        assert told[1:] == ["no answer; trying again in 1 s", "no answer; trying again in 4 s"]

    def test_whose_mirror_cannot_be_read_from_here_is_left_to_the_launched_process(
        self, plan: Callable, given: Callable, tmp_path: Path
    ) -> None:
        launcher, told = given(), list[str]()
        (tmp_path / "no-folder").touch()
        _submit(plan(checkpoint_base_uri=str(tmp_path / "no-folder"), resume_from_checkpoint=True), told)
        assert len(launcher.contexts) == 1
        assert "left to the launched process" in told[0]


def test_a_run_whose_supervisor_cannot_be_started_is_as_it_was(plan: Callable, past: Callable, given: Callable) -> None:
    given(FatalError("no such namespace"))
    with pytest.raises(FatalError, match="no such namespace"):
        _submit(plan())
    assert not plan().directory.path.exists()
    run = past(plan()).ended("preempted")
    before = run.tree()
    with pytest.raises(FatalError):
        _submit(plan(max_steps=50))
    assert run.tree() == before


def test_a_run_that_exists_is_submitted_for_its_next_attempt_and_remembers_its_parent(
    plan: Callable, past: Callable, given: Callable
) -> None:
    given()
    past(plan()).ended("preempted")
    record = plan().directory.record
    RunRecord(job=plan().spec.to_json(), job_dir="/", parent="/b/step-000003.json", submitted_ms=7).write(record)
    assert _submit(plan()).attempt == 2
    found = RunRecord.read(record)
    assert (found.parent, found.submitted_ms) == ("/b/step-000003.json", 7)
