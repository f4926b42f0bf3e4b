"""A checkpoint is there whole or not at all, whatever goes wrong, and whenever the process dies."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import numpy as np
import pytest

from hostcore.checkpoints import durable
from hostcore.checkpoints.commit import Draft
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed, newest, verify
from hostcore.checkpoints.leftovers import remove_uncommitted
from hostcore.checkpoints.prune import prune
from hostcore.checkpoints.snapshot import write_state

CALLS = (
    "fsync_file", "fsync_folder", "make_folder", "make_hidden_folder", "write_file", "move", "remove_file",
    "remove_folder",
)  # fmt: skip


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


def test_a_draft_is_begun_in_one_thread_and_committed_in_another(folder):
    draft = Draft.begin(folder.path, step=200, attempt=1)
    sealed = write_state(draft.folder, "state", {"a": np.arange(3)})
    (draft.folder / "own.bin").write_bytes(b"own")
    with ThreadPoolExecutor(1) as thread:
        record = thread.submit(draft.commit, epoch=3, final=True, sealed=sealed).result()
    assert [file.path for file in record.files] == ["own.bin", "state.json", "state.safetensors"]
    assert (record.step, record.epoch, record.final, record.attempt) == (200, 3, True, 1)
    assert newest(folder.path).found.record == record
    assert not newest(folder.path).skipped


def test_a_draft_that_is_discarded_leaves_the_older_version(folder):
    folder.commit(200, "old")
    before = folder.tree()
    draft = Draft.begin(folder.path, step=200, attempt=1)
    write_state(draft.folder, "state", {"a": np.arange(3)})
    draft.discard()
    assert folder.tree() == before
    draft.discard()
    assert folder.tree() == before


def test_to_discard_a_draft_that_is_committed_changes_nothing(folder):
    draft = Draft.begin(folder.path, step=200, attempt=1)
    record = draft.commit(epoch=0, final=False)
    draft.discard()
    assert newest(folder.path).found.record == record


def test_to_begin_a_draft_does_not_wait_for_the_disk(folder, disk):
    folder.commit(100)
    synced = []
    with disk(lambda count, name, *arguments: synced.append(arguments) if name == "fsync" else None):
        Draft.begin(folder.path, step=200, attempt=1)
    assert synced == []


def test_sealed_files_are_neither_synced_nor_hashed_again(folder, monkeypatch):
    draft = Draft.begin(folder.path, step=200, attempt=1)
    sealed = write_state(draft.folder, "state", {"a": np.arange(3)})
    (draft.folder / "own.bin").write_bytes(b"own")
    synced = []
    monkeypatch.setattr(durable, "fsync_file", lambda path: synced.append(path.name))
    made_up = [attrs.evolve(file, sha256="0" * 64) for file in sealed]
    record = draft.commit(epoch=0, final=False, sealed=made_up)
    assert synced == ["own.bin"]
    assert [file.sha256 for file in record.files[1:]] == ["0" * 64] * 2


SPOILS = {
    "removed": (lambda path: path.unlink(), "state.json was changed .* is missing"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b" "), "state.json was changed .* has .* bytes"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "state.json was changed .* is missing"),
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_sealed_file_that_was_changed_is_one_clear_error_and_changes_nothing(folder, spoil):
    folder.commit(200, "old")
    before = folder.tree()
    draft = Draft.begin(folder.path, step=200, attempt=2)
    sealed = write_state(draft.folder, "state", {"a": 1})
    change, message = SPOILS[spoil]
    change(draft.folder / "state.json")
    with pytest.raises(CheckpointError, match=message) as caught:
        draft.commit(epoch=0, final=False, sealed=sealed)
    assert caught.value.code == "checkpoint.content"
    assert caught.value.file == str(draft.folder / "state.json")
    assert folder.tree() == before


def test_whoever_replays_the_calls_has_the_same_files(folder, disk, tmp_path):
    """All that changes the file system goes through ``durable``, in commits, replacements, prunes and discards."""
    calls = []

    def record(count, name, *arguments):
        if name == "write":
            calls.append((name, Path(f"/proc/self/fd/{arguments[0]}").readlink(), bytes(arguments[1])))
        elif (name == "open" and arguments[1] & os.O_CREAT) or name not in ("open", "fsync"):
            calls.append((name, *arguments))

    def fill(content):
        return lambda path: write_state(path, "state", {"a": np.arange(100), "content": content})

    with disk(record):
        for step, content in ((100, "a"), (200, "old"), (200, "new"), (300, "c"), (400, "d")):
            folder.commit(step, fill=fill(content))
        Draft.begin(folder.path, step=500, attempt=1).discard()
        assert prune(folder.path, keep=2, protect={200}) == [100]
    replayed = type(folder)(tmp_path / "replayed")

    def there(path):
        return replayed.path / os.path.relpath(path, folder.path)

    for name, path, *rest in calls:
        if name == "write":
            with there(path).open("ab") as file:
                file.write(rest[0])
        elif name == "open":
            there(path).write_bytes(b"")
        else:
            getattr(os, name)(there(path), *map(there, rest))
    assert replayed.tree() == folder.tree()
    assert len(replayed.tree()) == 3 * (1 + 1 + 2)


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
    begin = recorded.calls.index(("make_hidden_folder", temporary))
    assert recorded.calls[begin:] == [
        ("make_hidden_folder", temporary),
        "fill",
        ("fsync_file", f"{temporary}/sub/a"),
        ("fsync_folder", f"{temporary}/sub"),
        ("fsync_folder", temporary),
        ("fsync_folder", "."),
        ("fsync_folder", ".."),
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
    durable.write_file(tmp_path / "c", [b"content"])
    durable.make_folder(tmp_path / "x" / "y")
    durable.remove_file(tmp_path / "b")
    durable.remove_folder(tmp_path / "x")
    here = str(tmp_path)
    assert synced == [here, f"{here}/c", here, here, here]


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
