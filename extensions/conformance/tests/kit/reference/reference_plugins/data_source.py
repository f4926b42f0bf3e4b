"""The data source ``reference``: text files of numbers, local or anywhere that fsspec reaches.

The first line names the columns and their types, ``id:int64,delay:float64``; every other is a row. A shard is some
lines that follow each other; where they begin is found out once, when the data is opened.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

import attrs
import fsspec
import pyarrow as pa
from annotated_types import Ge

from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings, Shard

_TYPES = {"int64": pa.int64(), "float64": pa.float64()}
_BATCH_ROWS = 5


class ReferenceSource:
    """Opens text files of numbers as a dataset."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """What a job says about the files."""

        paths: tuple[str, ...]
        #: Rows of a shard; the last one of a file may have fewer.
        shard_rows: Annotated[int, Ge(1)] = 16
        allow_nulls: bool = False

    def __init__(self, *, settings: Settings) -> None:
        if not settings.paths:
            raise InvalidSettings("/paths", "names no file")
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> "NumberFiles":
        """Look through the files for where their shards begin."""
        files = [_File.found(path, self._settings.shard_rows) for path in self._settings.paths]
        return NumberFiles(files, dataset.get("columns") or files[0].schema.names, self._settings.allow_nulls)


@attrs.frozen(kw_only=True)
class _File:
    """A file, and where its shards are."""

    path: str
    filesystem: Any
    schema: pa.Schema
    #: By id: the shard, and its first byte.
    shards: Mapping[str, tuple[Shard, int]]

    @classmethod
    def found(cls, uri: str, shard_rows: int) -> "_File":
        """Read it once.

        :raises InvalidData: When it is not there.
        """
        filesystem, path = fsspec.core.url_to_fs(uri)
        try:
            version = filesystem.ukey(path)
            with filesystem.open(path, "rb") as lines:
                schema = _schema(next(lines, b"").decode(), uri)
                shards, position = {}, lines.tell()
                for index, part in enumerate(_groups(lines, shard_rows)):
                    shard = Shard(id=f"{uri}#{index}", num_rows=len(part), version=version)
                    shards[shard.id] = (shard, position)
                    position += sum(map(len, part))
        except FileNotFoundError as error:
            raise InvalidData(f"{uri} does not exist", file=uri) from error
        return cls(path=path, filesystem=filesystem, schema=schema, shards=shards)


def _groups(lines: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    lines = iter(lines)
    while group := list(islice(lines, size)):
        yield group


def _schema(header: str, uri: str) -> pa.Schema:
    pairs = [column.strip().split(":") for column in header.split(",")]
    try:
        return pa.schema([pa.field(name, _TYPES[type_name]) for name, type_name in pairs])
    except (KeyError, ValueError) as error:
        raise InvalidData(f"{uri} does not begin with columns such as id:int64", file=uri) from error


class NumberFiles:
    """An opened dataset."""

    def __init__(self, files: Sequence[_File], columns: Sequence[str], allow_nulls: bool) -> None:
        everything = files[0].schema
        for name in columns:
            if name not in everything.names:
                hint = f"its columns are {', '.join(everything.names)}"
                raise InvalidData(f"{files[0].path} has no column {name!r}", hint=hint)
        self.allow_nulls = allow_nulls
        self.schema = pa.schema([everything.field(name) for name in columns])
        self._files = files

    def shards(self) -> Sequence[Shard]:
        """All shards, in file order."""
        return [shard for file in self._files for shard, _ in file.shards.values()]

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        """Read the rest of a shard. The file is open for as long as somebody reads."""
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        file = next(one for one in self._files if shard.id in one.shards)
        with file.filesystem.open(file.path, "rb") as lines:
            lines.seek(file.shards[shard.id][1])
            for part in _groups(islice(lines, offset, shard.num_rows), _BATCH_ROWS):
                yield _batch(part, file.schema, schema)


def _batch(lines: Sequence[bytes], everything: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    texts = dict(zip(everything.names, zip(*(line.strip().split(b",") for line in lines), strict=True), strict=True))
    arrays = []
    for field in schema:
        number = int if pa.types.is_integer(field.type) else float
        arrays.append(pa.array([number(text) if text else None for text in texts[field.name]], field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Known:
    """The harness: what the example's files have in them, told in another way than the source reads them."""

    def rows(self) -> list[dict[str, float]]:
        """All rows, in order."""
        return [{"id": i, "hour": i % 24, "delay": i / 8 - 3} for i in range(60)]
