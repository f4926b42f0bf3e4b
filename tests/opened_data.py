"""Data sources of files, opened as a run opens them: their rows, and their refusals."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hostcore_hookspecs import DataContext, InvalidData


def opened(
    source: Any,
    *paths: Path | str,
    dataset: Mapping[str, Any] | None = None,
    columns: Sequence[str] = (),
    split: str = "train",
    cache_dir: Path | str = "",
    **settings: Any,
) -> Any:
    """The dataset of some files; ``settings`` are those of the source."""
    if paths:
        settings["parquet_paths" if hasattr(source.Settings, "parquet_paths") else "paths"] = tuple(map(str, paths))
    made = source(settings=source.Settings(**settings))
    return made.open_dataset(
        {"columns": list(columns), **(dataset or {})}, DataContext(split=split, cache_dir=str(cache_dir))
    )


def table(dataset: Any, columns: Sequence[str] | None = None, offset: int = 0) -> pa.Table:
    """All rows, read backwards so that every shard is sought; each shard has the rows that it promised.

    :param offset: Rows of each shard that are passed over.
    """
    parts: list[pa.RecordBatch] = []
    for shard in reversed(dataset.shards()):
        batches = list(dataset.read_shard(shard, columns, offset))
        assert sum(batch.num_rows for batch in batches) == max(0, shard.num_rows - offset)
        parts[:0] = batches
    return pa.Table.from_batches(parts, None if parts else dataset.schema)


def values(dataset: Any, column: str = "n", offset: int = 0) -> list[Any]:
    """One column of all rows, in order."""
    return list(table(dataset, [column], offset)[column].to_pylist())


def refused(call: Callable[[], Any], match: str | None = None) -> InvalidData:
    """The error of a dataset that cannot be opened or read."""
    with pytest.raises(InvalidData, match=match) as raised:
        call()
    return raised.value
