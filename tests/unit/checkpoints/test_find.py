"""Whole checkpoints are found, damaged ones are passed over with the reason."""

import subprocess
import sys

import pytest

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import Skipped, committed, load_record, newest, verify


def truncate(path):
    with path.open("r+b") as file:
        file.truncate(10)


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def to_folder(path):
    path.unlink()
    path.mkdir()


DAMAGES = {
    "truncated": (truncate, "trainer/weights/w.bin has 10 bytes where 1000 were committed"),
    "a flipped bit": (flip_a_bit, "content of trainer/weights/w.bin is not what was committed"),
    "missing": (lambda path: path.unlink(), "trainer/weights/w.bin is missing"),
    "a folder": (to_folder, "trainer/weights/w.bin is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_found(folder, damage):
    record = folder.commit(200)
    break_it, reason = DAMAGES[damage]
    break_it(folder.path / "step-000200" / "trainer" / "weights" / "w.bin")
    with pytest.raises(CheckpointError, match=reason) as caught:
        verify(folder.path, record)
    assert caught.value.code == "checkpoint.damaged"
    assert caught.value.file == str(folder.path / "step-000200" / "trainer" / "weights" / "w.bin")


def test_listing_reads_no_checkpoint_and_notes_beside_the_files_spoil_none(folder):
    record = folder.commit(200)
    (folder.path / "step-000200" / "NOTES.txt").write_text("the good one")
    verify(folder.path, record)
    (folder.path / "step-000200" / "host.json").write_text("damaged, and not looked at")
    assert committed(folder.path) == [record]


def test_the_newest_checkpoint_is_found_by_number_and_not_by_name(folder):
    assert newest(folder.path).found is None
    folder.path.mkdir()
    (folder.path / "README").touch()
    assert (newest(folder.path).found, newest(folder.path).skipped, committed(folder.path)) == (None, (), [])
    for step in (999_999, 1_000_000, 200):
        folder.commit(step)
    assert newest(folder.path).found.record.step == 1_000_000
    assert [record.step for record in committed(folder.path)] == [200, 999_999, 1_000_000]


def test_what_does_not_verify_is_passed_over_newest_first_with_the_reason(folder):
    for step in (100, 200, 300, 400, 500, 600):
        folder.commit(step)
    (folder.path / "step-000600" / "host.json").write_text("y")
    (folder.path / "step-000500.json").write_text("{torn")
    (folder.path / "step-000400.json").unlink()
    (folder.path / "step-000300.json").write_bytes((folder.path / "step-000200.json").read_bytes())
    search = newest(folder.path)
    assert search.found.record.step == 200
    assert search.found.folder == folder.path / "step-000200"
    assert [skipped.path.name for skipped in search.skipped] == [f"step-000{n}00" for n in (6, 5, 4, 3)]
    reasons = [skipped.reason for skipped in search.skipped]
    assert "host.json" in reasons[0]
    assert "not a commit record" in reasons[1]
    assert "no commit record step-000400.json" in reasons[2]
    assert "of step 200, but it is named as step 300" in reasons[3]
    assert all(isinstance(skipped, Skipped) for skipped in search.skipped)


@pytest.mark.parametrize("name", ["step-000200", "step-000200.json", "step-000200/"])
def test_a_checkpoint_is_named_by_its_record_or_its_folder(folder, monkeypatch, name):
    record = folder.commit(200)
    found = load_record(folder.path / name)
    assert found.record == record
    assert found.folder == folder.path / "step-000200"
    monkeypatch.chdir(folder.path)
    assert load_record(type(folder.path)(name)) == found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("step-000300", "does not exist"),
        ("step-000300.json", "does not exist"),
        ("step-000200/host.json", "is not a checkpoint"),
        (".", "is not a checkpoint"),
        ("..", "is not a checkpoint"),
        ("../elsewhere", "does not exist"),
    ],
)
def test_what_is_not_a_checkpoint_is_refused_with_what_to_name(folder, name, message):
    folder.commit(200)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_record(folder.path / name)
    assert caught.value.code == "checkpoint.not_found"
    assert "step-000200.json" in caught.value.hint
    folder.commit(300)
    with pytest.raises(CheckpointError) as caught:
        load_record(folder.path.parent)
    assert str(folder.path / "step-000300.json") in caught.value.hint


def test_a_checkpoint_without_its_record_or_its_folder_is_refused(folder):
    record = folder.commit(200)
    (folder.path / "step-000100").mkdir()
    with pytest.raises(CheckpointError, match="no commit record") as caught:
        load_record(folder.path / "step-000100")
    assert caught.value.code == "checkpoint.uncommitted"
    (folder.path / "step-000200").rename(folder.path / "moved")
    for look in (lambda: load_record(folder.path / "step-000200.json"), lambda: verify(folder.path, record)):
        with pytest.raises(CheckpointError, match="its folder is missing"):
            look()
    assert committed(folder.path) == []
    to_folder(folder.path / "step-000200.json")
    with pytest.raises(CheckpointError, match="cannot be read: Is a directory"):
        load_record(folder.path / "step-000200.json")


def test_finding_checkpoints_does_not_import_torch():
    code = """if True:
        import sys
        from hostcore.checkpoints import commit, find, prune
        assert not {"torch", "numpy", "safetensors", "cattrs"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", code], check=True)
