"""What is looked at before each attempt of a run."""

import os
import resource
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from actors import staged

from hostcore.events.reader import read_events
from hostcore.supervisor import quick_checks
from hostcore.supervisor.quick_checks import NoSpace, quick_warnings
from hostcore_hookspecs.events import RunSucceeded, Warning


@attrs.define
class Machine:
    """What there is of it; enough of everything, until a test takes some away."""

    free_bytes: float = 10**12
    memory: int = 10**12
    files: int = 10**6


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine of the test, whatever it really has."""
    made = Machine()
    space = {"total_bytes": 10**13, "free_names": None}
    monkeypatch.setattr(quick_checks, "space_of", lambda folder: {**space, "free_bytes": made.free_bytes})
    monkeypatch.setattr(quick_checks, "available_memory", lambda: made.memory)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (made.files, 10**6))
    for name in [name for name in os.environ if name.startswith("HOSTCORE_") and name != "HOSTCORE_RUNS_DIR"]:
        monkeypatch.delenv(name)
    return made


def told(plan: Any) -> dict[str, str]:
    return {one.code: one.message for one in quick_warnings(plan)}


def test_nothing_is_told_of_a_machine_that_has_enough(plan: Callable) -> None:
    assert told(plan()) == {}


def test_what_may_hurt_is_told(plan: Callable, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.free_bytes, machine.memory, machine.files = 10**6, 900_000_000, 100
    monkeypatch.setenv("HOSTCORE_RUNDIR", "/data")
    monkeypatch.setenv("HOSTCORE_TEAM_NAME", "vision")
    assert told(plan(devices=["cpu", "cpu"])) == {
        "disk.space": "1 MB of 10 TB free; make room, or choose another disk: HOSTCORE_RUNS_DIR=/some/folder",
        "environment": "hostcore does not know HOSTCORE_RUNDIR; did you mean HOSTCORE_RUNS_DIR?",
        "system.files": "at most 100 open at once; raise it: ulimit -n 4096",
        "system.memory": "2 workers take about 1 GB before there is a model, and 900 MB are available; "
        "end other processes",
    }
    assert "system.memory" not in told(plan()), "one worker has enough"


def test_the_disk_must_take_one_more_checkpoint(plan: Callable, past: Callable, machine: Machine) -> None:
    run = past(plan())
    run.attempt()
    run.checkpoint(5)
    machine.free_bytes = 1
    assert told(plan())["disk.space"].startswith("the next checkpoint needs about 1 kB, and 0.001 kB are free")
    with pytest.raises(NoSpace) as caught:
        told(plan(require_checkpoints=True))
    assert caught.value.pointer == "/require_checkpoints"
    before = run.tree()
    with staged(plan(require_checkpoints=True)) as stage, pytest.raises(NoSpace):
        stage.result()
    assert stage.actors == []
    assert {name for name in run.tree() if "attempt" in name} == {name for name in before if "attempt" in name}
    child = plan(run_id="b", resume_from_checkpoint=str(run.plan.checkpoints_dir / "step-000005.json"))
    assert "the next checkpoint needs" in told(child)["disk.space"]


def test_a_run_has_the_warnings_in_its_log(plan: Callable, machine: Machine) -> None:
    machine.memory = 10**6
    with staged(plan()) as stage:
        (actor,) = stage.begin()
        actor.end(RunSucceeded())
        assert stage.result().status == "succeeded"
    events = [event.payload for event, _ in read_events(plan().directory.events)]
    assert [one.code for one in events if isinstance(one, Warning)] == ["system.memory"]
