"""A checkpoint is there whole or not at all, whatever goes wrong, and whenever the process dies."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import numpy as np
import pytest

from hostcore.checkpoints.commit import Draft
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed, newest, verify
from hostcore.checkpoints.leftovers import remove_uncommitted
from hostcore.checkpoints.prune import prune
from hostcore.checkpoints.snapshot import write_state


def path_of(argument):
    """The path behind an argument of a call; None if it has none."""
    if isinstance(argument, int):
        return Path(f"/proc/self/fd/{argument}").readlink() if argument > 2 else None
    return argument if isinstance(argument, Path) else None


class Protocol:
    """All calls that change something or wait for the disk, with paths below the folder: a fate for ``disk``."""

    def __init__(self, folder):
        self.calls = []
        self._folder = folder.path

    def __call__(self, count, name, *arguments):
        if name != "open" or arguments[1] & os.O_CREAT:
            paths = arguments[:1] if name in ("open", "mkdir", "write") else arguments
            found = [os.path.relpath(path, self._folder) for one in paths if (path := path_of(one))]
            self.calls.append(" ".join([name, *found]))


def test_a_committed_checkpoint_lists_its_files_with_sizes_and_hashes(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # relative directories work as well
    assert committed(Path("checkpoints")) == []
    record = type(folder)(Path("checkpoints")).commit(200, "abc", final=True, attempt=3)
    assert [(file.path, file.size) for file in record.files] == [("host.json", 3), ("trainer/weights/w.bin", 3000)]
    assert record.files[0].sha256 == hashlib.sha256(b"abc").hexdigest()
    assert (record.step, record.final, record.attempt) == (200, True, 3)
    assert folder.names() == ["step-000200", "step-000200.json"]
    assert committed(folder.path) == [record]
    verify(folder.path, record)


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
    draft.discard()  # too late
    assert newest(folder.path).found.record == record


def test_a_draft_that_is_discarded_leaves_the_older_version(folder):
    folder.commit(200, "old")
    before = folder.tree()
    draft = Draft.begin(folder.path, step=200, attempt=1)
    write_state(draft.folder, "state", {"a": np.arange(3)})
    draft.discard()
    assert folder.tree() == before
    draft.discard()
    assert folder.tree() == before


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


def test_only_leftovers_of_earlier_attempts_are_removed_or_of_the_same_one_by_its_next_commit(folder):
    assert remove_uncommitted(folder.path, 2) == []  # the folder is missing
    hidden = folder.path / ".step-000100.attempt-1.tmp"
    hidden.mkdir(parents=True)
    (hidden / "half").touch()
    folder.commit(100)
    assert folder.names() == ["step-000100", "step-000100.json"]
    assert not (folder.path / "step-000100" / "half").exists()
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


def test_a_directory_that_cannot_be_created_is_one_clear_error(tmp_path, folder):
    folder.path.write_text("a file")
    with pytest.raises(CheckpointError, match="step 200 could not be written") as caught:
        folder.commit(200)
    assert caught.value.file == str(folder.path)
    assert "Earlier checkpoints are intact" in caught.value.hint


def test_the_protocol_is_the_documented_one(folder, disk):
    folder.commit(200, "old")
    protocol = Protocol(folder)

    def fill(path):
        protocol.calls.append("fill")
        (path / "sub").mkdir()
        (path / "sub" / "a").touch()

    with disk(protocol):
        folder.commit(200, attempt=2, fill=fill, may_commit=lambda: protocol.calls.append("may commit"))
    new, record = ".step-000200.attempt-2.tmp", ".step-000200.json.attempt-2.tmp"
    old, old_record = ".step-000200.attempt-2.old", ".step-000200.json.attempt-2.old"
    assert protocol.calls == [
        *(f"mkdir {new}", "fill", f"fsync {new}/sub/a", f"fsync {new}/sub", f"fsync {new}", "fsync .", "fsync .."),
        *(f"open {record}", f"write {record}", f"fsync {record}", "fsync .", "may commit"),
        *(f"rename step-000200.json {old_record}", "fsync .", f"rename step-000200 {old}", "fsync ."),
        *(f"rename {new} step-000200", "fsync .", f"rename {record} step-000200.json", "fsync ."),
        *(f"unlink {old_record}", "fsync .", f"unlink {old}/host.json", f"unlink {old}/trainer/weights/w.bin"),
        *(f"rmdir {old}/trainer/weights", f"rmdir {old}/trainer", f"rmdir {old}", "fsync ."),
    ]


def test_to_begin_a_draft_does_not_wait_for_the_disk_and_sealed_files_are_neither_synced_nor_hashed_again(folder, disk):
    folder.commit(100)
    protocol = Protocol(folder)
    with disk(protocol):
        draft = Draft.begin(folder.path, step=200, attempt=1)
    assert not [call for call in protocol.calls if call.startswith("fsync")]
    sealed = write_state(draft.folder, "state", {"a": np.arange(3)})
    (draft.folder / "own.bin").write_bytes(b"own")
    made_up = [attrs.evolve(file, sha256="0" * 64) for file in sealed]
    with disk(protocol):
        record = draft.commit(epoch=0, final=False, sealed=made_up)
    assert [call for call in protocol.calls if call.startswith("fsync") and ".tmp/" in call] == [
        f"fsync {os.path.relpath(draft.folder, folder.path)}/own.bin"
    ]
    assert [file.sha256 for file in record.files[1:]] == ["0" * 64] * 2


@pytest.mark.parametrize("error", [ValueError("plugin"), OSError(28, "No space left"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("refuses", [False, True], ids=["fill", "may_commit"])
def test_what_fill_and_a_refusal_raise_goes_through_and_leaves_everything_as_it_was(folder, error, refuses):
    def fill(path):
        (path / "half").write_text("x")
        if not refuses:
            raise error

    def may_commit():
        assert folder.content(200) == "old"
        raise error

    folder.commit(200, "old")
    before = folder.tree()
    with pytest.raises(type(error)) as caught:
        folder.commit(200, fill=fill, attempt=2, may_commit=may_commit)
    assert caught.value is error
    assert folder.tree() == before


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: (path / "model.bin").symlink_to("/etc/hostname"), id="a link"),
        pytest.param(lambda path: (path / "sub").symlink_to("/etc"), id="a link to a folder"),
        pytest.param(lambda path: os.mkfifo(path / "pipe"), id="a pipe"),
        pytest.param(lambda path: (path / os.fsdecode(b"\xff")).touch(), id="an odd name"),
    ],
)
def test_what_is_not_a_regular_file_with_a_unicode_name_is_refused(folder, make):
    with pytest.raises(CheckpointError, match="regular files with UTF-8 names only") as caught:
        folder.commit(200, fill=make)
    assert caught.value.code == "checkpoint.content"
    assert folder.names() == []
