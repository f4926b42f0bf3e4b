"""A checkpoint that a job names by a URI is fetched to the cache, verified, and used from there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import newest
from hostcore.runs.record import RunRecord
from hostcore.supervisor.opening import open_run
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.remote import checkpoints
from hostcore.supervisor.remote.checkpoints import fetch_parent

BASE = "memory://mirror of ü"
FOLDER = f"{BASE}/a/framework=somewhere-Trainer/checkpoints"


@pytest.fixture
def mirrored(store: Any) -> Any:
    store.past.attempt(1)
    store.past.checkpoint(4)
    store.mirror()
    return store


@pytest.fixture
def child(mirrored: Any, machine: Any) -> Callable[[Any], RunPlan]:
    """``child("step-000004.json")``: the plan of a run that begins there."""
    return lambda name: machine.plan(run_id="b", resume_from_checkpoint=f"{FOLDER}/{name}")


@pytest.mark.parametrize("name", ["step-000004.json", "step-000004", "step-000004/"])
def test_record_and_folder_both_name_it_and_the_second_time_nothing_is_fetched(
    child: Callable, machine: Any, name: str
) -> None:
    parent = fetch_parent(child(name), machine.told.append)
    assert parent.endswith("/step-000004.json")
    opened = open_run(attrs.evolve(child(name), fetched_parent=parent))
    assert opened.parent == f"{FOLDER}/{name}"  # the record says where it came from
    assert fetch_parent(child(name), machine.told.append) == parent
    assert len(machine.told) == 1


def test_a_path_of_this_machine_and_auto_need_nothing(mirrored: Any, machine: Any) -> None:
    for resume in ("auto", True, False, "/somewhere/step-000004.json"):
        assert fetch_parent(machine.plan(run_id="b", resume_from_checkpoint=resume), machine.told.append) == ""


@pytest.mark.parametrize("name", ["step-000005.json", "final.json"])
def test_what_is_not_there_is_an_error_at_its_pointer(child: Callable, machine: Any, name: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        fetch_parent(child(name), machine.told.append)
    assert (caught.value.code, caught.value.pointer) == ("checkpoint.not_found", "/resume_from_checkpoint")


def test_a_damaged_one_is_an_error_and_not_kept(mirrored: Any, child: Callable, machine: Any, tmp_path: Any) -> None:
    mirrored.change("checkpoints/step-000004/host.json", b"[]")
    with pytest.raises(Exception, match="SHA-256") as caught:
        fetch_parent(child("step-000004.json"), machine.told.append)
    assert caught.value.pointer == "/resume_from_checkpoint"
    assert list((tmp_path / "cache" / "checkpoints").iterdir()) == []


def test_a_run_that_has_no_checkpoint_of_its_own_yet_fetches_its_parent_again(child: Callable, machine: Any) -> None:
    plan = child("step-000004.json")
    opened = open_run(attrs.evolve(plan, fetched_parent=fetch_parent(plan, machine.told.append)))
    RunRecord(job=plan.spec.to_json(), job_dir="/", parent=opened.parent).write(plan.directory.record)
    again = machine.plan(run_id="b", resume_from_checkpoint="auto")
    assert fetch_parent(again, machine.told.append).endswith("/step-000004.json")


def test_one_that_another_process_has_fetched_meanwhile_is_used(
    child: Callable, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = child("step-000004.json")
    bring = checkpoints.bring

    def and_so_does_the_other(folder: Any, step: int, target: Path) -> Any:
        monkeypatch.setattr(checkpoints, "bring", bring)
        fetch_parent(plan, machine.told.append)
        return bring(folder, step, target)

    monkeypatch.setattr(checkpoints, "bring", and_so_does_the_other)
    parent = Path(fetch_parent(plan, machine.told.append))
    assert {path.name for path in parent.parent.parent.iterdir()} == {parent.parent.name}
    assert newest(parent.parent).found.record.step == 4
