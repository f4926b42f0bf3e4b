"""A run that lies in a mirror alone becomes a run of this machine; what is damaged there is passed over."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

from hostcore.checkpoints.find import newest
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.documents import CorruptDocument
from hostcore.runs.summary import list_runs
from hostcore.supervisor.opening import RunConflict
from hostcore.supervisor.remote.adopting import adopt_from_mirror, find_in_mirror
from hostcore_builtin_plugins.processes import place_name
from hostcore_builtin_plugins.stores.errors import StoreError


@pytest.fixture
def mirrored(store: Any) -> Any:
    """A run of two attempts with three checkpoints, in the mirror."""
    store.past.attempt(1)
    for step in (2, 4, 6):
        store.past.checkpoint(step)
    store.past.attempt(2)
    store.past.result("preempted", attempt=2)
    store.mirror()
    return store


@pytest.mark.parametrize("base", ["memory://mirror of ü", "memory://mirror of ü/", "memory:///mirror of ü"])
def test_only_the_newest_checkpoint_is_fetched_and_nothing_else_is_left(mirrored: Any, machine: Any, base: str) -> None:
    plan = machine.plan(checkpoint_base_uri=base)
    assert find_in_mirror(plan).endswith("/a/framework=somewhere-Trainer")
    assert find_in_mirror(machine.plan(run_id="b")) == ""
    assert not machine.plan.runs.exists(), "looking fetches nothing"
    directory = machine.adopt(checkpoint_base_uri=base)
    assert find_in_mirror(plan) == ""
    assert {path.name for path in directory.checkpoints.iterdir()} == {"step-000006", "step-000006.json"}
    assert {path.name for path in machine.plan.runs.iterdir()} == {"a"}


def test_a_run_that_is_nowhere_is_a_conflict_if_it_must_be_resumed(store: Any, machine: Any) -> None:
    assert not machine.adopt().path.exists()
    with pytest.raises(RunConflict, match="neither here nor in its mirror") as caught:
        machine.adopt(resume_from_checkpoint=True)
    assert caught.value.pointer == "/resume_from_checkpoint"
    assert not machine.plan.runs.exists()


PREFIX = "/mirror of ü/a/framework=somewhere-Trainer"
BASE = "memory://mirror of ü"
NEWEST = "checkpoints/step-000006"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{NEWEST}/host.json", b"[]"),
        (f"{NEWEST}/trainer/weights 1.bin", b"short"),
        (f"{NEWEST}/trainer/weights 1.bin", None),
        (NEWEST, None),
        (f"{NEWEST}.json", None),
        (f"{NEWEST}.json", b"{}"),
        (f"{NEWEST}.json", "that of step 4"),
    ],
)
def test_a_damaged_or_partial_checkpoint_is_passed_over_with_a_warning(
    mirrored: Any, machine: Any, name: str, content: Any
) -> None:
    if isinstance(content, str):
        content = mirrored.filesystem.cat_file(f"{PREFIX}/checkpoints/step-000004.json")
    mirrored.change(name, content)
    directory = machine.adopt()
    assert newest(directory.checkpoints).found.record.step == 4
    assert not (directory.checkpoints / "step-000006").exists()
    (told,) = [line for line in machine.told if "passed over" in line]
    assert "step-000006" in told


def test_a_run_of_which_no_checkpoint_verifies_is_adopted_all_the_same_and_says_so(mirrored: Any, machine: Any) -> None:
    for step in (2, 4, 6):
        mirrored.change(f"checkpoints/step-{step:06}/host.json", None)
    directory = machine.adopt()
    assert newest_attempt(directory.attempts) == 2
    assert list(directory.checkpoints.iterdir()) == []
    assert "starts again at step 0" in machine.told[-1]


def test_a_run_without_log_result_and_checkpoints_is_adopted_as_one_whose_end_nobody_knows(
    store: Any, machine: Any
) -> None:
    store.past.attempt(1)
    store.mirror()
    store.change("logs/events.jsonl", None)
    directory = machine.adopt()
    assert newest_attempt(directory.attempts) == 1
    assert not directory.events.exists()
    assert "see that it does not run any more" in machine.told[-1]


def test_a_damaged_record_is_an_error_and_not_a_new_run(mirrored: Any, machine: Any) -> None:
    mirrored.change("config/run.json", b"{")
    with pytest.raises(CorruptDocument) as caught:
        machine.adopt()
    assert str(caught.value.file).startswith("memory://mirror of ü/a/")
    assert not machine.plan.runs.exists()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"seed": 7}, "/seed: 0 -> 7"),
        ({"resume_from_checkpoint": False}, "exists already, in its mirror"),
        ({"resume_from_checkpoint": "/somewhere/step-000002.json"}, "exists already, in its mirror"),
    ],
)
def test_a_run_of_another_job_or_that_should_be_new_is_refused_before_anything_is_fetched(
    mirrored: Any, machine: Any, keys: dict[str, Any], says: str
) -> None:
    with pytest.raises(RunConflict, match=says):
        machine.adopt(**keys)
    assert not machine.plan.runs.exists()


class TestWithACopyHere:
    @pytest.fixture
    def both(self, store: Any, machine: Any) -> Any:
        """Attempt 1 is here and in the mirror."""
        store.past.attempt(1)
        store.past.checkpoint(2)
        store.mirror(remove=False)
        machine.plan.runs.mkdir()
        shutil.copytree(store.directory.path, machine.plan.runs / "a")
        return store

    def test_what_is_here_is_left_as_it_is_unless_the_mirror_is_ahead(self, both: Any, machine: Any) -> None:
        before = dict(machine.tree)
        machine.adopt()
        assert machine.tree == before
        assert machine.told == []
        both.past.attempt(2)
        both.mirror()
        with pytest.raises(RunConflict, match="mirror is at attempt 2, and what is here ends with attempt 1") as caught:
            machine.adopt()
        assert "move" in caught.value.hint

    def test_another_attempt_of_the_same_number_is_a_conflict(self, both: Any, machine: Any) -> None:
        claim = orjson.loads((both.directory.attempts / "1.json").read_bytes())
        claim["process"]["host"] = "elsewhere"
        both.change("attempts/1.json", orjson.dumps(claim))
        with pytest.raises(RunConflict, match="another one of that number"):
            machine.adopt()

    def test_a_mirror_that_lags_behind_is_none(self, both: Any, machine: Any) -> None:
        claim = (machine.plan.runs / "a" / "attempts" / "1.json").read_bytes()
        (machine.plan.runs / "a" / "attempts" / "2.json").write_bytes(claim)
        machine.adopt()

    def test_without_the_store_the_run_goes_on_here_with_a_warning(
        self, both: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        break_store(both, monkeypatch)
        machine.adopt()
        assert "no route" in machine.told[-1]


def break_store(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route")

    monkeypatch.setattr(type(store.filesystem), "cat_file", fail)


def test_without_the_store_a_run_that_may_be_there_is_begun_only_if_it_is_to_be_new(
    mirrored: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_store(mirrored, monkeypatch)
    with pytest.raises(StoreError, match="no route") as caught:
        machine.adopt()
    assert caught.value.pointer == "/checkpoint_base_uri"
    assert '"resume_from_checkpoint": false' in caught.value.hint
    assert not machine.plan.runs.exists()
    machine.adopt(run_id=None)
    assert machine.told == [], "its id was made just now"
    machine.adopt(resume_from_checkpoint=False)
    assert "begins anew" in machine.told[-1]


@pytest.mark.parametrize("error", [ConnectionError("reset"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_a_transfer_that_fails_leaves_no_run(
    mirrored: Any, machine: Any, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fail(_self: Any, _remote: str, local: str, **_: Any) -> None:
        Path(local).write_bytes(b"half")
        raise error

    monkeypatch.setattr(type(mirrored.filesystem), "get_file", fail)
    with pytest.raises(StoreError):
        machine.adopt()
    assert list(machine.plan.runs.iterdir()) == []


def test_what_a_killed_adoption_has_left_is_no_run_and_is_removed_by_the_next(mirrored: Any, machine: Any) -> None:
    machine.adopt()
    runs = machine.plan.runs
    other = runs / f".adopting-a-{place_name()}-1-999999999"  # of a machine whose name begins like ours
    left = runs / f".adopting-a-{place_name()}-4194305"
    for folder in (other, left):
        folder.mkdir()
    shutil.move(runs / "a", left / "a")
    assert list_runs(runs) == ([], [])
    machine.adopt()
    assert {path.name for path in runs.iterdir()} == {"a", other.name}


def test_of_two_that_adopt_at_once_both_have_the_run(mirrored: Any, machine: Any, monkeypatch: Any) -> None:
    from hostcore.supervisor.remote import adopting

    original = adopting.fetch_run

    def slow(*arguments: Any) -> None:
        original(*arguments)
        monkeypatch.setattr(adopting, "fetch_run", original)
        shutil.copytree(arguments[1], machine.plan.runs / "a")  # the other one was faster

    monkeypatch.setattr(adopting, "fetch_run", slow)
    directory = machine.adopt()
    assert newest(directory.checkpoints).found.record.step == 6
    assert {path.name for path in machine.plan.runs.iterdir()} == {"a"}


@pytest.mark.parametrize("left", [False, True])
def test_a_folder_of_checkpoints_elsewhere_gets_the_checkpoint(
    mirrored: Any, machine: Any, tmp_path: Path, left: bool
) -> None:
    """Also where a process was killed before it had moved the record."""
    elsewhere = tmp_path / "elsewhere"
    if left:
        (elsewhere / "step-000006").mkdir(parents=True)
        (elsewhere / "step-000006/host.json").write_text("{}")
    plan = attrs.evolve(machine.plan(), checkpoints_dir=elsewhere)
    adopt_from_mirror(plan, machine.told.append)
    assert newest(elsewhere).found.record.step == 6
    assert {path.name for path in elsewhere.iterdir()} == {"step-000006", "step-000006.json"}
    assert list(plan.directory.checkpoints.iterdir()) == []
