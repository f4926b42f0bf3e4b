import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opened_data import opened, refused, table, values

from hostcore_builtin_plugins.sources.arrow import ArrowSource

open_arrow = partial(opened, ArrowSource)
Make = Callable[..., Any]
KINDS = pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
NUMBERS = [pa.record_batch({"n": range(first, first + 4)}) for first in (0, 4, 8)]


def written(path: Path, batches: Sequence[pa.RecordBatch], make: Make = pa.ipc.new_file, **options: Any) -> Path:
    with make(path, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@KINDS
def test_compressed_batches_are_the_shards(tmp_path: Path, make: Make, compression: str) -> None:
    dataset = open_arrow(written(tmp_path / "a.arrow", NUMBERS, make, compression=compression))
    assert [shard.num_rows for shard in dataset.shards()] == [4, 4, 4]
    assert values(dataset, offset=1) == [1, 2, 3, 5, 6, 7, 9, 10, 11]


@KINDS
def test_dictionaries_are_read_in_any_order_of_shards(tmp_path: Path, make: Make) -> None:
    batch = pa.record_batch({"word": pa.array(["a", "b", "a", "c"]).dictionary_encode()})
    assert values(open_arrow(written(tmp_path / "a.arrow", [batch] * 3, make)), "word") == ["a", "b", "a", "c"] * 3


def test_a_dictionary_replaced_in_the_middle_of_a_stream_is_minded(tmp_path: Path) -> None:
    batches = [pa.record_batch({"word": pa.array(words).dictionary_encode()}) for words in (["a", "b"], ["c"], ["d"])]
    path = written(tmp_path / "a.arrows", batches, pa.ipc.new_stream)
    assert values(open_arrow(path), "word") == ["a", "b", "c", "d"]


def test_a_batch_outlives_the_file_it_was_mapped_from(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow", NUMBERS)
    read = table(open_arrow(path))
    path.unlink()
    assert read["n"].to_pylist() == list(range(12))


def test_a_stream_that_nobody_ended_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrows", NUMBERS, pa.ipc.new_stream)
    os.truncate(path, path.stat().st_size - 8)  # the mark of the end, which the format does not require
    assert values(open_arrow(path)) == list(range(12))


def test_damage_in_the_middle_is_found_while_reading(tmp_path: Path) -> None:
    narrow = pa.array([1] * 4, pa.int8())
    batches = [pa.record_batch({"narrow": narrow, "n": batch["n"]}) for batch in NUMBERS[:2]]
    path = written(tmp_path / "a.arrow", batches, compression="zstd")
    content = bytearray(path.read_bytes())
    frames = [i for i in range(len(content)) if content[i : i + 4] == b"\x28\xb5\x2f\xfd"]  # of Zstandard
    content[frames[-1] : frames[-1] + 4] = b"junk"
    path.write_bytes(content)
    refused(lambda: values(open_arrow(path)), rf"record batch 1 of {path} cannot be read")
