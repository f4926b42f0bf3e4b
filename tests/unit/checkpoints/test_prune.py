"""Old checkpoints go; what somebody wants, what is not ours, and the last good one stay."""

import errno
import os

import pytest

from hostcore.checkpoints.find import committed, newest
from hostcore.checkpoints.leftovers import remove_uncommitted
from hostcore.checkpoints.prune import prune


def steps(folder):
    return [record.step for record in committed(folder.path)]


def damage(folder, step):
    (folder.path / f"step-{step:06d}" / "host.json").write_text("damaged")


def test_the_newest_are_kept_and_the_rest_removed_oldest_first(folder):
    for step in (100, 200, 300, 400, 500):
        folder.commit(step)
    assert prune(folder.path, keep=2, protect=()) == [100, 200, 300]
    assert folder.names() == ["step-000400", "step-000400.json", "step-000500", "step-000500.json"]


def test_protected_steps_are_kept_besides_the_newest(folder):
    for step in (100, 200, 300, 400):
        folder.commit(step)
    assert prune(folder.path, keep=1, protect={200, 999}) == [100, 300]
    assert steps(folder) == [200, 400]


@pytest.mark.parametrize("keep", [2, 3, 100])
def test_few_checkpoints_are_all_kept(folder, keep):
    for step in (100, 200):
        folder.commit(step)
    assert prune(folder.path, keep=keep, protect=()) == []
    assert steps(folder) == [100, 200]


def test_the_newest_that_verifies_is_never_removed(folder):
    for step in (100, 200):
        folder.commit(step)
    assert prune(folder.path, keep=0, protect=()) == [100]
    assert prune(folder.path, keep=0, protect=()) == []
    assert steps(folder) == [200]


def test_nothing_newer_that_verifies_means_nothing_is_removed(folder):
    for step in (100, 200, 300):
        folder.commit(step)
    damage(folder, 200)
    damage(folder, 300)
    assert prune(folder.path, keep=1, protect=()) == []
    assert newest(folder.path).found.record.step == 100


def test_only_what_is_older_than_one_that_verifies_is_removed(folder):
    for step in (100, 200, 300):
        folder.commit(step)
    damage(folder, 300)
    assert prune(folder.path, keep=1, protect=()) == [100]
    assert steps(folder) == [200, 300]


def test_what_is_not_ours_stays(folder):
    for step in (100, 200, 300):
        folder.commit(step)
    (folder.path / "step-000100.json").write_text('{"step": 100}')
    (folder.path / "step-000050").mkdir()
    (folder.path / "best.pt").touch()
    assert prune(folder.path, keep=1, protect=()) == [200]
    assert folder.names() == [
        "best.pt",
        "step-000050",
        "step-000100",
        "step-000100.json",
        "step-000300",
        "step-000300.json",
    ]


def test_nothing_is_pruned_where_nothing_is(folder):
    assert prune(folder.path, keep=1, protect=()) == []


def test_a_negative_number_to_keep_is_refused(folder):
    with pytest.raises(ValueError, match="negative"):
        prune(folder.path, keep=-1, protect=())


@pytest.mark.parametrize("code", [errno.EPERM, errno.EBUSY, errno.ENOTEMPTY])
def test_what_is_held_costs_no_other_checkpoint_its_removal_and_no_later_attempt_its_start(folder, disk, code):
    """A file in the folder of step 100 is immutable, or open on a network file system."""
    for step in (100, 200, 300):
        folder.commit(step)

    def held(_, name, path, *rest):
        return "fails" if name == "unlink" and "step-000100/" in str(path) else None

    with disk(held, code), pytest.raises(OSError, match=os.strerror(code)):
        prune(folder.path, keep=1, protect=())
    assert steps(folder) == [300]
    unremoved = []
    with disk(held, code):
        remove_uncommitted(folder.path, 2, unremoved=unremoved)
    assert [error.errno for error in unremoved] == [code]
    assert newest(folder.path).found.record.step == 300
    assert remove_uncommitted(folder.path, 2, unremoved=unremoved) == [100], "it is tried again"
    assert folder.names() == ["step-000300", "step-000300.json"]


def test_a_file_system_that_refuses_is_an_error_of_the_next_attempt(folder, disk):
    for step in (100, 200):
        folder.commit(step)
    with disk(lambda _, name, *rest: "fails" if name == "unlink" else None, errno.EROFS), pytest.raises(OSError):
        prune(folder.path, keep=1, protect=())
    with (
        disk(lambda _, name, *rest: "fails" if name == "unlink" else None, errno.EROFS),
        pytest.raises(OSError, match=os.strerror(errno.EROFS)),
    ):
        remove_uncommitted(folder.path, 2, unremoved=[])
