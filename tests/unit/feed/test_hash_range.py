"""Rows that are chosen by their hashes: which, and how they are read."""

import hashlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from hostcore.worker.feed.hash_range import HashRange, hashes
from hostcore_hookspecs import InvalidData, Shard

ROWS = {"a#0": 700, "a#1": 1, "b#0": 1300}


class Numbers:
    """A dataset of the numbers of its rows, read in batches of seven."""

    schema = pa.schema([("n", pa.int64())])
    allow_nulls = True

    def shards(self) -> Sequence[Shard]:
        return [Shard(id=name, num_rows=rows, version="1") for name, rows in ROWS.items()]

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        assert columns == ["n"]
        for start in range(offset, ROWS[shard.id], 7):
            numbers = pa.array(range(start, min(start + 7, ROWS[shard.id])), pa.int64())
            yield pa.RecordBatch.from_arrays([numbers], schema=self.schema)


def read(dataset: HashRange, shard: Shard, offset: int = 0) -> list[int]:
    return [n for batch in dataset.read_shard(shard, ["n"], offset) for n in batch["n"].to_pylist()]


def test_ranges_share_out_each_row_once() -> None:
    parts = [HashRange(Numbers(), *ends) for ends in ((0, 0.7), (0.7, 0.9), (0.9, 1))]
    for number, (name, rows) in enumerate(ROWS.items()):
        found = [read(part, part.shards()[number]) for part in parts]
        assert sorted(row for rows in found for row in rows) == list(range(rows)), name
        for part, own in zip(parts, found, strict=True):
            assert part.shards()[number].num_rows == len(own)
            assert part.rows_of(name).tolist() == own
            assert part.whole_rows(name) == rows
    shares = [sum(shard.num_rows for shard in part.shards()) / sum(ROWS.values()) for part in parts]
    assert shares == pytest.approx([0.7, 0.2, 0.1], abs=0.03)
    assert parts[0].allow_nulls


@pytest.mark.parametrize("offset", [0, 1, 60, 200])
def test_a_shard_is_read_from_one_of_its_rows_on(offset: int) -> None:
    dataset = HashRange(Numbers(), 0.2, 0.5)
    shard = dataset.shards()[2]
    assert read(dataset, shard, offset) == dataset.rows_of("b#0").tolist()[offset:]
    assert read(dataset, shard, shard.num_rows) == []


def splitmix64(seed: int, count: int) -> list[int]:
    found = []
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) % 2**64
        mixed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        found.append(mixed ^ (mixed >> 31))
    return found


def test_hashes_are_those_of_splitmix64() -> None:
    # Published with the generator, for the seed 1234567.
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    seed = int.from_bytes(hashlib.sha256(b"train.parquet#0").digest()[:8], "little")
    assert hashes("train.parquet#0", 5).tolist() == splitmix64(seed, 5)


def test_a_range_without_rows_is_an_error() -> None:
    with pytest.raises(InvalidData, match="none of 2,001 rows has a hash"):
        HashRange(Numbers(), 0.5, 0.5000001)
