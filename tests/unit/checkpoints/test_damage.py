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


def damages(content, others, rng):
    """What may become of a file, by what it is called; None stands for one that is missing."""
    size = len(content)
    for position in rng.sample(range(size), min(5, size)):
        flipped = bytes([content[position] ^ 1 << rng.randrange(8)])
        yield f"a bit of byte {position}", content[:position] + flipped + content[position + 1 :]
    for end in sorted({0, 1, size // 4, size // 2, max(size - 8, 0), size - 1}):
        yield f"cut off at {end}", content[:end]
    yield "longer", content + b"\0"
    yield "missing", None
    for other in others:
        yield f"the content of {other.name}", other.read_bytes()


def test_a_damaged_file_leads_to_the_older_checkpoint(folder, checkpoint, seed):
    files = paths(folder, checkpoint)
    assert {file.name for file in files} == {
        *("step-000200.json", "host.json", "state.json", "state.safetensors", "w.bin")
    }
    for path in files:
        content = path.read_bytes()
        for what, damaged in damages(content, [one for one in files if one != path], random.Random(seed)):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            assert_found_out(folder, f"{path.name}: {what}")
            path.write_bytes(content)
    assert newest(folder.path).found.record == checkpoint


def test_a_checkpoint_of_the_same_step_of_another_run_is_not_mistaken_for_it(folder, checkpoint):
    other = type(folder)(folder.path / "other")
    other.save(200, "NEW")
    record = folder.path / "step-000200.json"
    record.write_bytes((other.path / "step-000200.json").read_bytes())
    assert [one.step for one in committed(folder.path)] == [100, 200]
    assert_found_out(folder, "the record of another run")
