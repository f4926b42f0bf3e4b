"""The reporter wandb: its settings, and how it reads wandb's files. ``extensions/trackers/tests/e2e`` has real runs."""

from pathlib import Path


def test_a_file_that_was_torn_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    from hostcore_trackers.wandb.session import RunFile

    def framed(kind: int, data: bytes) -> bytes:
        return bytes(4) + len(data).to_bytes(2, "little") + bytes([kind]) + data

    small, large = Record(num=1).SerializeToString(), Record(num=2, uuid="x" * 40_000).SerializeToString()
    first = 32 * 1024 - 7 - 7 - len(small) - 7
    whole = b":W&B\xe1\xbe\x00" + framed(1, small) + framed(2, large[:first]) + framed(4, large[first:])
    path = tmp_path / "run-a.wandb"
    path.write_bytes(whole[:-1])
    file = RunFile(path)
    assert [record.num for record in file.new_records()] == [1]
    path.write_bytes(whole + bytes(100))
    assert [record.num for record in file.new_records()] == [2]
    assert [record.num for record in RunFile(path).new_records()] == [1, 2]
