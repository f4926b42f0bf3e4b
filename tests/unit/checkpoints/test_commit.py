"""A checkpoint is there whole or not at all, whatever goes wrong, and whenever the process dies."""

import hashlib
import itertools
import os
import traceback
from pathlib import Path

import attrs
import numpy as np
import pytest

from hostcore.checkpoints import durable
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed, newest, verify
from hostcore.checkpoints.leftovers import remove_uncommitted
from hostcore.checkpoints.prune import prune

CALLS = ("fsync_file", "fsync_folder", "make_folder", "write_file", "move", "remove_file", "remove_folder")


def test_a_committed_checkpoint_lists_its_files_with_sizes_and_hashes(folder):
    record = folder.commit(200, "abc", final=True, attempt=3)
    assert [(file.path, file.size) for file in record.files] == [("host.json", 3), ("trainer/weights/w.bin", 3000)]
    assert record.files[0].sha256 == hashlib.sha256(b"abc").hexdigest()
    assert (record.step, record.final, record.attempt) == (200, True, 3)
    assert folder.names() == ["step-000200", "step-000200.json"]
    assert committed(folder.path) == [record]
    verify(folder.path, record)


def test_relative_directories_work(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    record = type(folder)(Path("checkpoints")).commit(1)
    assert committed(folder.path) == [record]


def test_a_checkpoint_may_be_empty_and_may_hold_empty_folders(folder):
    verify(folder.path, folder.commit(1, fill=lambda path: None))
    verify(folder.path, folder.commit(2, fill=lambda path: (path / "trainer").mkdir()))
    assert (folder.path / "step-000002" / "trainer").is_dir()


def test_a_step_that_is_written_again_replaces_the_older_version(folder):
    folder.commit(200, "old")
    record = folder.commit(200, "new", attempt=2)
    assert folder.content(200) == "new"
    assert folder.names() == ["step-000200", "step-000200.json"]
    verify(folder.path, record)


def test_a_folder_without_a_record_is_set_aside_and_not_deleted(folder):
    (folder.path / "step-000200").mkdir(parents=True)
    (folder.path / "step-000200" / "thesis.tex").write_text("precious")
    folder.commit(200)
    assert (folder.path / "step-000200.set-aside-1" / "thesis.tex").read_text() == "precious"
    assert folder.names() == ["step-000200", "step-000200.json", "step-000200.set-aside-1"]


def test_a_record_that_is_not_ours_is_set_aside_with_its_folder(folder):
    folder.commit(200, "old")
    (folder.path / "step-000200.json").write_text("{}")
    folder.commit(200, "new")
    assert folder.names() == [
        "step-000200",
        "step-000200.json",
        "step-000200.json.set-aside-1",
        "step-000200.set-aside-1",
    ]
    assert folder.content(200) == "new"


class RecordedCalls:
    """The calls of ``durable``, as the outermost ones see them."""

    def __init__(self, monkeypatch, directory):
        self.calls = []
        self._inside = 0
        self._directory = directory
        for name in CALLS:
            monkeypatch.setattr(durable, name, self._recording(name, getattr(durable, name)))

    def _recording(self, name, call):
        def recorded(*arguments):
            if not self._inside:
                paths = [os.path.relpath(a, self._directory) for a in arguments if isinstance(a, Path)]
                self.calls.append((name, *paths))
            self._inside += 1
            try:
                return call(*arguments)
            finally:
                self._inside -= 1

        return recorded


def test_the_protocol_is_the_documented_one(folder, monkeypatch):
    folder.commit(200, "old")
    recorded = RecordedCalls(monkeypatch, folder.path)

    def fill(path):
        recorded.calls.append("fill")
        (path / "sub").mkdir()
        (path / "sub" / "a").touch()

    folder.commit(200, attempt=2, fill=fill, may_commit=lambda: recorded.calls.append("may commit"))
    temporary, record = ".step-000200.attempt-2.tmp", ".step-000200.json.attempt-2.tmp"
    begin = recorded.calls.index(("make_folder", temporary))
    assert recorded.calls[begin:] == [
        ("make_folder", temporary),
        "fill",
        ("fsync_file", f"{temporary}/sub/a"),
        ("fsync_folder", f"{temporary}/sub"),
        ("fsync_folder", temporary),
        ("write_file", record),
        ("fsync_folder", "."),
        "may commit",
        ("move", "step-000200.json", ".step-000200.json.attempt-2.old"),
        ("move", "step-000200", ".step-000200.attempt-2.old"),
        ("move", temporary, "step-000200"),
        ("move", record, "step-000200.json"),
        ("remove_file", ".step-000200.json.attempt-2.old"),
        ("remove_folder", ".step-000200.attempt-2.old"),
    ]


def test_a_move_is_followed_by_the_fsync_of_its_folder(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    (tmp_path / "a").touch()
    durable.move(tmp_path / "a", tmp_path / "b")
    durable.write_file(tmp_path / "c", b"content")
    durable.make_folder(tmp_path / "x" / "y")
    durable.remove_file(tmp_path / "b")
    durable.remove_folder(tmp_path / "x")
    here = str(tmp_path)
    assert synced == [here, f"{here}/c", here, f"{here}/x", here, here]


def raising(error):
    def fill(path):
        (path / "half").write_text("x")
        raise error

    return fill


@pytest.mark.parametrize("error", [ValueError("plugin"), OSError(28, "No space left"), KeyboardInterrupt()], ids=repr)
def test_what_fill_raises_goes_through_and_leaves_nothing_behind(folder, error):
    folder.commit(200, "old")
    before = folder.tree()
    with pytest.raises(type(error)) as caught:
        folder.commit(200, fill=raising(error), attempt=2)
    assert caught.value is error
    assert folder.tree() == before


def test_a_refusal_leaves_everything_as_it_was(folder):
    class HigherAttempt(Exception):
        pass

    def refuse():
        assert folder.content(200) == "old"
        raise HigherAttempt

    folder.commit(200, "old")
    before = folder.tree()
    with pytest.raises(HigherAttempt):
        folder.commit(200, "new", attempt=2, may_commit=refuse)
    assert folder.tree() == before


@attrs.define
class Failure:
    """Makes one call of ``durable`` fail, before or after it has taken effect."""

    number: int
    after: bool
    calls: int = 0

    def patch(self, monkeypatch):
        for name in CALLS:
            monkeypatch.setattr(durable, name, self._failing(getattr(durable, name)))

    def _failing(self, call):
        def failing(*arguments):
            self.calls += 1
            if self.calls != self.number:
                return call(*arguments)
            if self.after:
                call(*arguments)
            raise OSError(5, "Input/output error", str(arguments[0]))

        return failing


def visible(folder):
    return {path: content for path, content in folder.tree().items() if not path.startswith(".")}


def starting_points(folder, again):
    """Fresh folders with a checkpoint of step 100 and, if the step is to be written again, one of step 200."""
    for number in itertools.count(1):
        fresh = type(folder)(folder.path / str(number))
        fresh.commit(100, "older")
        if again:
            fresh.commit(200, "old")
        yield number, fresh


@pytest.mark.parametrize("again", [False, True], ids=["a new step", "a step written again"])
@pytest.mark.parametrize("after", [False, True], ids=["before it takes effect", "after it took effect"])
def test_a_call_that_fails_is_one_clear_error_and_changes_nothing(folder, monkeypatch, again, after):
    errors = 0
    for number, fresh in starting_points(folder, again):
        before = fresh.tree()
        failure = Failure(number, after)
        error = None
        with monkeypatch.context() as patched:
            failure.patch(patched)
            try:
                fresh.commit(200, "new", attempt=2)
            except CheckpointError as caught:
                error = caught
        if failure.calls < number:
            break
        if error is None:  # it was about to remove the older version: the checkpoint exists
            assert fresh.content(200) == "new"
        else:
            errors += 1
            assert error.code == "checkpoint.write"
            assert "step 200 could not be written: Input/output error" in error.message
            assert visible(fresh) == before, f"call {number} failed"
        remove_uncommitted(fresh.path, 3)
        assert fresh.tree() == visible(fresh)
        assert not newest(fresh.path).skipped
    assert errors >= 10


def in_a_process_that_dies_at_call(number, action):
    """Run in a child process, which is gone without a trace at one of its calls. Whether it got that far."""
    child = os.fork()
    if child == 0:
        count = 0

        def dying(call):
            def wrapped(*arguments, **options):
                nonlocal count
                count += 1
                if count == number:
                    os._exit(9)
                return call(*arguments, **options)

            return wrapped

        try:
            for name in CALLS:
                setattr(durable, name, dying(getattr(durable, name)))
            # The calls inside one step of the protocol count too.
            os.rename, os.unlink = dying(os.rename), dying(os.unlink)
            action()
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


@pytest.mark.parametrize("again", [False, True], ids=["a new step", "a step written again"])
def test_a_death_at_any_call_of_a_commit_loses_no_committed_checkpoint(folder, again):
    outcomes = []
    for number, fresh in starting_points(folder, again):
        before = fresh.tree()
        if not in_a_process_that_dies_at_call(number, lambda fresh=fresh: fresh.commit(200, "new", attempt=2)):
            break
        assert newest(fresh.path).found is not None, f"no checkpoint after a death at call {number}"
        remove_uncommitted(fresh.path, 3)
        assert fresh.tree() == visible(fresh), f"leftovers after a death at call {number}"
        assert not newest(fresh.path).skipped
        outcomes.append(fresh.content(200))
        if fresh.content(200) != "new":
            assert fresh.tree() == before, f"after a death at call {number}"
    assert len(outcomes) >= 14
    assert outcomes == sorted(outcomes, key=lambda content: content == "new")  # never back again
    assert outcomes[-1] == "new"


@pytest.mark.parametrize("first", range(1, 40))
def test_a_death_while_the_leftovers_of_another_are_removed_does_no_harm(folder, first):
    folder.commit(200, "old")
    if not in_a_process_that_dies_at_call(first, lambda: folder.commit(200, "new", attempt=2)):
        assert folder.content(200) == "new"
        return
    second = 1
    while in_a_process_that_dies_at_call(second, lambda: remove_uncommitted(folder.path, 3)):
        second += 1
    assert folder.names() == ["step-000200", "step-000200.json"]
    assert folder.content(200) in ("old", "new")
    assert newest(folder.path).skipped == ()
    assert newest(folder.path).found is not None


def test_a_death_at_any_call_of_a_prune_leaves_whole_checkpoints_only(folder):
    kept = []
    for number, fresh in starting_points(folder, again=True):
        if not in_a_process_that_dies_at_call(number, lambda fresh=fresh: prune(fresh.path, keep=1, protect=())):
            break
        assert newest(fresh.path).found.record.step == 200
        remove_uncommitted(fresh.path, 2)
        assert fresh.tree() == visible(fresh)
        assert committed(fresh.path)[-1].step == 200
        for record in committed(fresh.path):
            verify(fresh.path, record)
        assert len(fresh.names()) == 2 * len(committed(fresh.path))
        kept.append(len(committed(fresh.path)))
    assert set(kept) == {1, 2}


def test_the_next_commit_of_the_same_attempt_clears_what_an_earlier_one_left(folder):
    hidden = folder.path / ".step-000200.attempt-1.tmp"
    hidden.mkdir(parents=True)
    (hidden / "half").touch()
    folder.commit(200)
    assert folder.names() == ["step-000200", "step-000200.json"]
    assert not (folder.path / "step-000200" / "half").exists()


def test_only_leftovers_of_earlier_attempts_are_removed(folder):
    folder.commit(100)
    for name in (".step-000200.attempt-1.tmp", ".step-000200.attempt-2.tmp", ".step-000300.attempt-3.tmp", ".mine"):
        (folder.path / name).mkdir()
    (folder.path / ".step-000200.json.attempt-1.tmp").touch()
    (folder.path / "step-000400").mkdir()
    assert remove_uncommitted(folder.path, 2) == [200]
    assert folder.names() == [
        ".mine",
        ".step-000200.attempt-2.tmp",
        ".step-000300.attempt-3.tmp",
        "step-000100",
        "step-000100.json",
        "step-000400",
    ]


def test_leftovers_of_a_folder_that_is_missing_are_none(folder):
    assert remove_uncommitted(folder.path, 2) == []


def link(path):
    (path / "model.bin").symlink_to("/etc/hostname")


def link_to_folder(path):
    (path / "sub").symlink_to("/etc")


def fifo(path):
    os.mkfifo(path / "pipe")


def odd_name(path):
    (path / os.fsdecode(b"\xff")).touch()


@pytest.mark.parametrize("fill", [link, link_to_folder, fifo, odd_name])
def test_what_is_not_a_regular_file_with_a_unicode_name_is_refused(folder, fill):
    with pytest.raises(CheckpointError, match="regular files with UTF-8 names only") as caught:
        folder.commit(200, fill=fill)
    assert caught.value.code == "checkpoint.content"
    assert folder.names() == []


def test_a_directory_that_cannot_be_created_is_one_clear_error(tmp_path, folder):
    folder.path.write_text("a file")
    with pytest.raises(CheckpointError, match="step 200 could not be written") as caught:
        folder.commit(200)
    assert caught.value.file == str(folder.path)
    assert "Earlier checkpoints are intact" in caught.value.hint


@pytest.mark.parametrize("state", [{"big": "x" * 10_000}, np.zeros(10_000)], ids=["json", "tensors"])
def test_a_full_disk_is_one_clear_error_and_keeps_the_older_checkpoint(folder, state):
    import resource
    import signal

    from hostcore.checkpoints.state import write_state

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
