"""Text files as a format of datasets: read once from the beginning to the end for an index, and then by stretches."""

import zlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import attrs
import pyarrow as pa

from hostcore_builtin_plugins.sources.columns import closest_column
from hostcore_builtin_plugins.sources.file_dataset import FileFormat, FileIndex, FilePart, ShardLocation
from hostcore_builtin_plugins.sources.files import DataFile
from hostcore_builtin_plugins.sources.text_index import IndexCache, TextIndex, TextStretch
from hostcore_builtin_plugins.sources.text_scan import TextReader, TextScan
from hostcore_builtin_plugins.sources.text_types import TypesDiffer, escaped
from hostcore_hookspecs import InvalidData

#: Files whose name ends like this are unpacked while they are read.
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@attrs.frozen(kw_only=True)
class TextPart(FilePart):
    """The stretches of text that make a shard: one, or all of a file that has to be unpacked from its beginning."""

    stretches: Sequence[TextStretch]
    #: See :class:`TextIndex`.
    records: str


class TextFormat(FileFormat):
    """A format of text.

    :param types: Of the columns whose types the job declares.
    :param cache: Where indexes are kept.
    :param pointer: Where the job has the settings of the format.
    """

    part_name = "stretch"
    #: What messages call a file of the format.
    format_name: str
    #: A stretch of each is in memory, and it is looked at by one core.
    scan_threads = 4

    difference_hint = (
        "write all files with the same columns, name the ones they share in 'columns', or tell the type in 'types'"
    )
    #: Whether a column that 'types' names need not be in every file.
    fills_in = False

    def __init__(self, types: Mapping[str, pa.DataType], *, cache: IndexCache, pointer: str) -> None:
        self.types = types
        self.pointer = pointer
        self._cache = cache

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Return the settings that an index depends on, as plain JSON."""

    @abstractmethod
    def start(self, text: bytes, *, at_end: bool) -> tuple[TextReader, int] | None:
        """Look at how a file begins: its reader, and where the first record is; None if that takes more of the text.

        :raises TextTrouble: If it does not begin like a file of the format.
        """

    @abstractmethod
    def reader(self, records: str, columns: pa.Schema) -> TextReader:
        """A reader for stretches of a file.

        :param records: See :class:`TextIndex`.
        :param columns: All columns of the file.
        """

    @abstractmethod
    def joined(self, one: pa.Field, other: pa.Field) -> pa.Field:
        """The type that fits a column of two files.

        :raises TypesDiffer: If there is none.
        """

    def read_index(self, file: DataFile) -> FileIndex:
        """See :class:`FileFormat`."""
        index = self._cache.find(file, self.settings)
        if index is None:
            index = self._make_index(file)
            file.require_unchanged()
            self._cache.keep(file, self.settings, index)
        shards = [[stretch] for stretch in index.stretches] if _codec(file) is None else [index.stretches]
        parts = [
            TextPart(num_rows=sum(stretch.num_rows for stretch in shard), stretches=shard, records=index.records)
            for shard in shards
        ]
        return FileIndex(schema=index.schema, parts=parts)

    def read_part(self, place: ShardLocation, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See :class:`FileFormat`."""
        assert isinstance(place.part, TextPart)
        reader = self.reader(place.part.records, place.columns)
        for stretch, text in _texts(place.file, place.part.stretches):
            if zlib.crc32(text) != stretch.checksum:
                raise InvalidData(
                    f"{place.file.name} is not what it was when it was looked through",
                    file=place.file.name,
                    hint="it was written in place, or is damaged: copy or write it again, and start a new run",
                )
            yield from reader.read(text, schema).to_batches()

    def reconciled(self, found: Mapping[DataFile, FileIndex]) -> Mapping[DataFile, FileIndex]:
        """See :class:`FileFormat`. A file to whose types the others' do not fit keeps its own."""
        common: dict[str, pa.Field] = {}
        schemas: dict[DataFile, dict[str, pa.Field]] = {}
        for file, index in found.items():
            schemas[file] = {field.name: field for field in index.schema} if index.parts else {}
            for name, field in schemas[file].items():
                with suppress(TypesDiffer):
                    common[name] = self.joined(common[name], field) if name in common else field
        self._require_declared(list(common))
        full = [file.name for file, index in found.items() if index.parts]
        if full and not common:
            raise InvalidData(f"the records of {full[0]} have no columns", file=full[0])
        for fields in schemas.values():
            for name, field in fields.items():
                with suppress(TypesDiffer):
                    if self.joined(common[name], field).type == common[name].type:
                        fields[name] = common[name]
            if fields and self.fills_in:
                fields.update({name: common[name] for name in self.types if name not in fields})
        return {file: attrs.evolve(found[file], schema=pa.schema(fields.values())) for file, fields in schemas.items()}

    def _require_declared(self, names: Sequence[str]) -> None:
        """Refuse types of columns that no file has."""
        for name in self.types:
            if names and name not in names:
                raise InvalidData(
                    f"no file has the column {name!r}, of which 'types' tells the type",
                    pointer=f"{self.pointer}/types/{escaped(name)}",
                    hint=closest_column(name, names),
                )

    def _make_index(self, file: DataFile) -> TextIndex:
        with _unpacked(file) as source:
            scan = TextScan(file, source, self.start, self.format_name)
            schema: pa.Schema | None = None
            stretches = []
            for start, text, ends in scan.stretches():
                schema, rows = scan.infer(text, ends, schema)
                if rows:
                    end, checksum = start + len(text), zlib.crc32(text)
                    stretches.append(TextStretch(start=start, end=end, num_rows=rows, checksum=checksum))
        return TextIndex(schema=schema or pa.schema([]), records=scan.records, stretches=stretches)


def _codec(file: DataFile) -> str | None:
    return next((codec for ending, codec in CODECS.items() if file.path.endswith(ending)), None)


@contextmanager
def _unpacked(file: DataFile) -> Iterator[pa.NativeFile]:
    with file.open() as packed:
        codec = _codec(file)
        if codec is None:
            yield packed
            return
        with pa.CompressedInputStream(packed, codec) as source:
            yield source


def _texts(file: DataFile, stretches: Sequence[TextStretch]) -> Iterator[tuple[TextStretch, bytes]]:
    """The text of each stretch."""
    if _codec(file) is None:
        for stretch in stretches:
            ranges = [(stretch.start, stretch.end)]
            with file.open() if file.place is None else file.open_excerpt(ranges) as source:
                source.seek(stretch.start)
                yield stretch, bytes(source.read(stretch.end - stretch.start))
        return
    with _unpacked(file) as source:
        position = 0
        for stretch in stretches:
            source.read(stretch.start - position)
            yield stretch, bytes(source.read(stretch.end - stretch.start))
            position = stretch.end
