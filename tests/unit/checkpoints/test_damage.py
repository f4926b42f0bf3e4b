"""Whatever happens to a byte of a checkpoint, it is noticed, and the older checkpoint is found in its place."""

import random

import pytest

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed, newest, verify


@pytest.fixture
def checkpoint(folder):
    """The newest of two checkpoints, of a real state, with files of a trainer."""
    folder.save(100, "older")
    return folder.save(200, "new")


def paths(folder, record):
    """All files of a checkpoint, its record too."""
    return [folder.path / "step-000200.json", *(folder.path / "step-000200" / file.path for file in record.files)]


def assert_found_out(folder, what):
    search = newest(folder.path)
    assert search.found is not None, what
    assert search.found.record.step == 100, what
    assert [skipped.path.name for skipped in search.skipped] == ["step-000200"], what


def test_a_flipped_bit_in_any_byte_of_any_file_is_noticed(folder, checkpoint, seed):
    """Which of the eight bits is drawn at random."""
    rng = random.Random(seed)
    assert {file.path for file in checkpoint.files} == {
        *("host.json", "state.json", "state.safetensors", "trainer/w.bin")
    }
    for path in paths(folder, checkpoint)[1:]:
        with path.open("r+b", buffering=0) as file:
            content = file.read()
            for position in range(len(content)):
                file.seek(position)
                file.write(bytes([content[position] ^ 1 << rng.randrange(8)]))
                with pytest.raises(CheckpointError, match="SHA-256 differs"):
                    verify(folder.path, checkpoint)
                file.seek(position)
                file.write(content[position : position + 1])
    verify(folder.path, checkpoint)


def test_a_flipped_bit_in_any_file_leads_to_the_older_checkpoint(folder, checkpoint, seed):
    rng = random.Random(seed)
    for path in paths(folder, checkpoint):
        content = path.read_bytes()
        for _ in range(20):
            position = rng.randrange(len(content))
            damaged = bytearray(content)
            damaged[position] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            assert_found_out(folder, f"{path.name}, byte {position}")
        path.write_bytes(content)
    assert newest(folder.path).found.record == checkpoint


def test_a_file_that_is_cut_off_longer_or_missing_leads_to_the_older_checkpoint(folder, checkpoint):
    for path in paths(folder, checkpoint):
        content = path.read_bytes()
        size = len(content)
        for end in sorted({0, 1, size // 4, size // 2, size - 8, size - 1} - {size}):
            path.write_bytes(content[: max(end, 0)])
            assert_found_out(folder, f"{path.name}, cut off at {end}")
        path.write_bytes(content + b"\0")
        assert_found_out(folder, f"{path.name}, longer")
        path.unlink()
        assert_found_out(folder, f"{path.name}, missing")
        path.write_bytes(content)
    assert newest(folder.path).found.record == checkpoint


def test_two_files_that_changed_places_lead_to_the_older_checkpoint(folder, checkpoint):
    for path in paths(folder, checkpoint):
        content = path.read_bytes()
        for other in paths(folder, checkpoint):
            if other != path:
                path.write_bytes(other.read_bytes())
                assert_found_out(folder, f"{path.name} holds {other.name}")
        path.write_bytes(content)


def test_a_checkpoint_of_the_same_step_of_another_run_is_not_mistaken_for_it(folder, checkpoint):
    other = type(folder)(folder.path / "other")
    other.save(200, "NEW")
    record = folder.path / "step-000200.json"
    record.write_bytes((other.path / "step-000200.json").read_bytes())
    assert [one.step for one in committed(folder.path)] == [100, 200]
    assert_found_out(folder, "the record of another run")
