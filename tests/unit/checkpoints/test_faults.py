"""No error of the disk and no death of the process costs a checkpoint, whichever call of the protocol it meets."""

import errno
import itertools
import os
import random
import resource
import signal

import numpy as np
import pytest
from thoroughness import IS_LONG

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed, newest, verify
from hostcore.checkpoints.leftovers import remove_uncommitted
from hostcore.checkpoints.prune import prune
from hostcore.checkpoints.snapshot import write_state

AGAIN = pytest.mark.parametrize("again", [False, True], ids=["a new step", "a step written again"])


@pytest.fixture(autouse=True)
def without_fsync(monkeypatch):
    """Nobody cuts the power here: fsync counts as a call, and need not do anything."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def save(folder, faulty):
    """Save step 200 on a faulty disk; the error, if there was one."""
    with faulty as disk:
        try:
            folder.save(200, "new", attempt=2)
        except CheckpointError as error:
            assert error.code == "checkpoint.write"
            assert "could not be written" in error.message
            assert "Earlier checkpoints are intact" in error.hint
            assert error.file
            return disk.calls, error
    return disk.calls, None


def check_after_the_next_start(folder, before):
    """What the next attempt finds: step 200 as it was, or the new one; nothing hidden, nothing broken."""
    remove_uncommitted(folder.path, 3)
    assert folder.tree() == folder.visible()
    search = newest(folder.path)
    assert not search.skipped
    assert search.found is not None
    if folder.content(200) != "new":
        assert folder.tree() == before


@AGAIN
@pytest.mark.parametrize(("how", "code"), [("fails", errno.ENOSPC), ("fails after", errno.EIO)])
def test_a_call_that_fails_is_one_clear_error_and_changes_nothing(folder, disk, again, how, code):
    errors = 0
    for number, fresh in folder.starting_points(again=again):
        before = fresh.tree()
        calls, error = save(fresh, disk(lambda count, *call, n=number: how if count == n else None, code))
        if calls < number:
            break
        if error is None:  # it met the removal of the older version: the checkpoint exists
            assert again
            assert fresh.content(200) == "new"
        else:
            errors += 1
            assert os.strerror(code) in error.message
            assert fresh.tree() == before, f"call {number} left something"
        check_after_the_next_start(fresh, before)
    assert errors >= 25


def full(_, name, *arguments):
    """A call that a full disk refuses."""
    return name in ("mkdir", "write") or (name == "open" and arguments[1] & os.O_CREAT)


@AGAIN
@pytest.mark.parametrize(
    ("refuses", "code"), [(full, errno.ENOSPC), (lambda *_: True, errno.EIO)], ids=["full", "dead"]
)
def test_a_disk_that_fails_for_good_costs_no_checkpoint_and_one_that_is_full_nothing(
    folder, disk, again, refuses, code
):
    for number, fresh in folder.starting_points(again=again):
        before = fresh.tree()
        fate = lambda *call, n=number: "fails" if call[0] >= n and refuses(*call) else None  # noqa: E731
        calls, error = save(fresh, disk(fate, code))
        if refuses is full and error is not None:
            assert fresh.tree() == before, f"full from call {number} on, which left something"
        check_after_the_next_start(fresh, before)
        if error is None and (refuses is full or calls < number):
            break
    assert number > (10 if refuses is full else 25)
    assert fresh.content(200) == "new"


def fails_at(first, second, for_good):
    def fate(count, *call):
        if count == first:
            return "fails after"
        return "fails" if count == second or (for_good and count > second) else None

    return fate


def test_a_disk_that_fails_while_an_error_is_undone_costs_no_checkpoint(folder, disk, seed):
    """Once more, or for good."""
    starts, chance = folder.starting_points(again=True), random.Random(seed)
    for first in itertools.count(1):
        for second in range(first + 1, first + 9):  # as long as it takes to undo what was done
            for for_good in (False, True) if IS_LONG else (chance.random() < 0.5,):
                _, fresh = next(starts)
                before = fresh.tree()
                calls, _ = save(fresh, disk(fails_at(first, second, for_good)))
                check_after_the_next_start(fresh, before)
            if calls < second:
                break
        if calls < first:
            break
    assert first > 25


@AGAIN
def test_a_death_at_any_call_of_a_commit_loses_no_committed_checkpoint(folder, dies_at_call, again):
    outcomes = []
    for number, fresh in folder.starting_points(again=again):
        before = fresh.tree()
        if not dies_at_call(number, lambda fresh=fresh: fresh.commit(200, "new", attempt=2)):
            break
        assert newest(fresh.path).found is not None, f"no checkpoint after a death at call {number}"
        check_after_the_next_start(fresh, before)
        outcomes.append(fresh.content(200))
    assert len(outcomes) >= 20
    assert outcomes == sorted(outcomes, key=lambda content: content == "new")  # never back again
    assert outcomes[-1] == "new"


def test_a_death_while_the_leftovers_of_another_are_removed_does_no_harm(folder, dies_at_call):
    for number, fresh in folder.starting_points(again=True):
        before = fresh.tree()
        if not dies_at_call(number, lambda fresh=fresh: fresh.commit(200, "new", attempt=2)):
            break
        second = 1
        while dies_at_call(second, lambda fresh=fresh: remove_uncommitted(fresh.path, 3)):
            second += 1
        check_after_the_next_start(fresh, before)
    assert number >= 20


def test_a_death_at_any_call_of_a_prune_leaves_whole_checkpoints_only(folder, dies_at_call):
    kept = []
    for number, fresh in folder.starting_points(again=True):
        if not dies_at_call(number, lambda fresh=fresh: prune(fresh.path, keep=1, protect=())):
            break
        assert newest(fresh.path).found.record.step == 200
        remove_uncommitted(fresh.path, 2)
        assert fresh.tree() == fresh.visible()
        assert committed(fresh.path)[-1].step == 200
        for record in committed(fresh.path):
            verify(fresh.path, record)
        assert len(fresh.names()) == 2 * len(committed(fresh.path))
        kept.append(len(committed(fresh.path)))
    assert set(kept) == {1, 2}


def test_a_prune_that_fails_at_any_call_leaves_whole_checkpoints_only(folder, disk):
    for number, fresh in folder.starting_points(again=True):
        with disk(lambda count, *call, n=number: "fails" if count == n else None) as faulty:
            try:
                prune(fresh.path, keep=1, protect=())
            except OSError as error:
                assert error.errno == errno.EIO
        for record in committed(fresh.path):
            verify(fresh.path, record)
        remove_uncommitted(fresh.path, 2)
        assert fresh.tree() == fresh.visible()
        assert not newest(fresh.path).skipped
        if faulty.calls < number:
            break
    assert number > 5


@pytest.mark.parametrize("state", [{"big": "x" * 10_000}, np.zeros(10_000)], ids=["json", "tensors"])
def test_a_file_that_may_not_grow_is_one_clear_error_and_keeps_the_older_checkpoint(folder, state):
    folder.commit(100, "older")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # as near to a full disk as a test can go: EFBIG
    try:
        with pytest.raises(CheckpointError, match="could not be written") as caught:
            folder.commit(200, fill=lambda path: write_state(path, "state", state))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.code == "checkpoint.write"
    assert folder.names() == ["step-000100", "step-000100.json"]
