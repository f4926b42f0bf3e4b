"""Old checkpoints go; what somebody wants, what is not ours, and the last good one stay."""

import errno
import os

import pytest

from hostcore.checkpoints.find import committed, newest
from hostcore.checkpoints.leftovers import remove_uncommitted
from hostcore.checkpoints.prune import prune


def steps(folder):
    return [record.step for record in committed(folder.path)]


@pytest.mark.parametrize(
    ("number", "damaged", "keep", "protect", "removed"),
    [
        pytest.param(5, (), 2, (), [100, 200, 300], id="the newest stay, and the rest goes, oldest first"),
        pytest.param(4, (), 1, {200, 999}, [100, 300], id="protected ones stay besides the newest"),
        pytest.param(2, (), 2, (), [], id="few stay"),
        pytest.param(2, (), 100, (), [], id="very few stay"),
        pytest.param(2, (), 0, (), [100], id="the newest that verifies always stays"),
        pytest.param(1, (), 0, (), [], id="it stays alone"),
        pytest.param(3, (200, 300), 1, (), [], id="nothing goes while nothing newer verifies"),
        pytest.param(3, (300,), 1, (), [100], id="only what is older than one that verifies goes"),
        pytest.param(0, (), 1, (), [], id="nothing is there"),
    ],
)
def test_old_checkpoints_go(folder, number, damaged, keep, protect, removed):
    written = [100 * one for one in range(1, number + 1)]
    for step in written:
        folder.commit(step)
    for step in damaged:
        (folder.path / f"step-{step:06d}" / "host.json").write_text("damaged")
    assert prune(folder.path, keep=keep, protect=protect) == removed
    assert steps(folder) == [step for step in written if step not in removed]


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
    for act in (
        lambda: prune(folder.path, keep=1, protect=()),
        lambda: remove_uncommitted(folder.path, 2, unremoved=[]),
    ):
        refusing = disk(lambda _, name, *rest: "fails" if name == "unlink" else None, errno.EROFS)
        with refusing, pytest.raises(OSError, match=os.strerror(errno.EROFS)):
            act()
