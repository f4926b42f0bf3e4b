"""The data source ``datasets``: what Hugging Face datasets keeps on this machine, by row index.

That is a folder that ``save_to_disk`` wrote, or files that one of the library's own builders (``parquet``,
``imagefolder``, …) reads. In both cases the library maps Arrow files into memory: any row is read without those
before it, and nothing is copied.
"""

import glob
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa

from hostcore_builtin_plugins.extras import require
from hostcore_builtin_plugins.sources.file_dataset import job_pointer, one_line
from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings
from hostcore_sources.indexed_rows import IndexedDataset, RowPart, RowReader, rows_at_once

if TYPE_CHECKING:
    from datasets import Dataset

#: Rows of files that are read at once, such as images: how large they are is not known before.
_EMBEDDED_ROWS: Final = 16
_SAVED = "state.json"
_SAVED_SPLITS = "dataset_dict.json"


class DatasetsSource:
    """Opens a dataset of Hugging Face datasets."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Folder or files of the dataset."""

        path: Path = attrs.field(
            metadata={
                "help": "A folder that `save_to_disk` wrote; with `builder`, a folder or file that the builder reads."
            }
        )
        builder: str = attrs.field(
            default="", metadata={"help": "A builder of the library, such as `parquet`, `json`, `text`, `imagefolder`."}
        )
        split: str = attrs.field(
            default="", metadata={"help": "The split to read, such as `train`; needed where there are several."}
        )
        streaming: bool = attrs.field(default=False, metadata={"help": "Only false: a stream has no row index."})
        allow_nulls: bool = attrs.field(default=False, metadata={"help": "Let nulls in numeric columns through."})

    def __init__(self, *, settings: Settings) -> None:
        if settings.streaming:
            raise InvalidSettings(
                "/streaming",
                "a stream cannot be read by row index: a run could neither shuffle all of it nor go on at its next "
                "batch; leave it out, and save a dataset that has to be downloaded with save_to_disk",
            )
        require("datasets", extra="datasets")
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> IndexedDataset:
        """Map the dataset's files into memory; a builder makes them first, once."""
        import datasets

        settings, pointer = self._settings, job_pointer(ctx)
        if not settings.path.exists():
            raise InvalidData(f"{settings.path} does not exist", pointer=f"{pointer}/path", file=str(settings.path))
        if "::" in str(settings.path):
            message, hint = f"datasets cannot read {settings.path}, for the :: in it", "rename the folder"
            raise InvalidData(message, pointer=f"{pointer}/path", file=str(settings.path), hint=hint)
        datasets.disable_progress_bars()
        found = _built(settings, ctx, pointer) if settings.builder else _saved(settings, pointer)
        return IndexedDataset(
            DatasetsReader(found, str(settings.path), is_built=bool(settings.builder)),
            dataset=dataset,
            ctx=ctx,
            allow_nulls=settings.allow_nulls,
        )


class DatasetsReader(RowReader):
    """Reads a dataset as Arrow, with its indices applied. All of it is one part."""

    def __init__(self, dataset: "Dataset", name: str, *, is_built: bool) -> None:
        from datasets.features.features import require_storage_embed

        self.name = name
        self._rows = dataset.with_format("arrow")
        self._fingerprint = str(dataset._fingerprint)
        files = [] if is_built else [Path(file["filename"]) for file in dataset.cache_files]
        #: A builder's files are made again where they are missing; its fingerprint covers their contents.
        self._files = [
            f"{file.name}-{status.st_size}-{status.st_mtime_ns}" for file in files for status in [file.stat()]
        ]
        #: Columns whose values may lie in files beside the dataset, as the images of a folder.
        self._beside = {name for name, feature in dataset.features.items() if require_storage_embed(feature)}
        #: The types of columns of arrays that all have one shape.
        self._shaped = {name: kind for name, feature in dataset.features.items() if (kind := _shaped_type(feature))}
        self._row_bytes = dataset.data.nbytes / max(1, len(dataset))

    def schema(self) -> pa.Schema:
        """See :class:`RowReader`."""
        fields = self._rows.data.schema
        return pa.schema([pa.field(one.name, self._shaped.get(one.name, one.type)) for one in fields])

    def parts(self) -> Sequence[RowPart]:
        """See :class:`RowReader`."""
        version = " ".join([self._fingerprint, *self._files])
        return [RowPart(id="rows", num_rows=len(self._rows), version=version)]

    def read(self, part: int, columns: Sequence[str], start: int, num_rows: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """See :class:`RowReader`."""
        from datasets.table import embed_table_storage

        is_beside = not self._beside.isdisjoint(columns)
        at_once = _EMBEDDED_ROWS if is_beside else rows_at_once(self._row_bytes)
        for first in range(start, start + num_rows, at_once):
            # Rows are slices of mapped files, so the other columns cost nothing; select_columns() would take 5 ms.
            table: pa.Table = self._rows[first : min(first + at_once, start + num_rows)].select(list(columns))
            table = embed_table_storage(table) if is_beside else table
            # The library writes batches of 1,000 rows, each of which the feed would handle alone.
            for batch in table.combine_chunks().to_batches():
                yield self._with_shapes(batch)

    def _with_shapes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Arrays of one shape as lists of a fixed size, of which the toolkit makes tensors."""
        for place, name in enumerate(batch.schema.names):
            if name in self._shaped:
                column = batch.column(place).storage.cast(self._shaped[name])
                batch = batch.set_column(place, pa.field(name, column.type), column)
        return batch


def _shaped_type(feature: Any) -> pa.DataType | None:
    """The type of arrays of one shape (``Array2D`` to ``Array5D``); None for all else."""
    from datasets.features.features import _ArrayXD, string_to_arrow

    if not isinstance(feature, _ArrayXD) or None in feature.shape:
        return None
    kind = string_to_arrow(feature.dtype)
    for size in reversed(feature.shape):
        kind = pa.list_(kind, size)
    return kind


def _saved(settings: "DatasetsSource.Settings", pointer: str) -> "Dataset":
    """The dataset in a folder of ``save_to_disk``."""
    from datasets import DatasetDict, load_from_disk

    name = str(settings.path)
    if not (settings.path / _SAVED).is_file() and not (settings.path / _SAVED_SPLITS).is_file():
        raise InvalidData(
            f"{name} was not written by save_to_disk of datasets",
            pointer=f"{pointer}/path",
            file=name,
            hint=f"a folder of save_to_disk has {_SAVED} or {_SAVED_SPLITS} in it; for data files, name the builder "
            "that reads them: parquet, json, csv, text, imagefolder, …",
        )
    try:
        found = load_from_disk(name, keep_in_memory=False)
    except Exception as error:  # the library raises what it likes about a damaged folder
        if empty := _without_rows(settings.path):
            hint = "save the dataset without that split" if empty != settings.path else None
            raise InvalidData(f"{empty} has no rows", pointer=f"{pointer}/path", file=name, hint=hint) from None
        raise InvalidData(
            f"{name} cannot be loaded by datasets: {type(error).__name__}: {one_line(str(error))}",
            pointer=f"{pointer}/path",
            file=name,
            hint="write it again with save_to_disk",
        ) from error
    if isinstance(found, DatasetDict):
        dataset: Dataset = found[_split(settings, list(found), pointer)]
        return dataset
    if settings.split and settings.split != str(found.split or ""):
        has = f"the split {str(found.split)!r}" if found.split else "a dataset without splits"
        raise InvalidData(f"{name} has {has}", pointer=f"{pointer}/split", file=name, hint="leave dataset.split out")
    return found


def _without_rows(saved: Path) -> Path | None:
    """The folder of a dataset, or of a split, without rows: the library saves it without a file, and cannot load it."""
    for state in (saved / _SAVED, *sorted(saved.glob(f"*/{_SAVED}"))):
        with suppress(OSError, ValueError):
            found = json.loads(state.read_bytes())
            if isinstance(found, dict) and found.get("_data_files") == []:
                return state.parent
    return None


def _built(settings: "DatasetsSource.Settings", ctx: DataContext, pointer: str) -> "Dataset":
    """Return a builder's dataset of files of this machine; the second time from the library's cache."""
    from datasets import DownloadConfig, load_dataset_builder
    from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES

    name = str(settings.path)
    builders = sorted(set(_PACKAGED_DATASETS_MODULES) - {"pandas"})  # it reads pickles, which run code
    if settings.builder not in builders:
        raise InvalidData(
            f"datasets has no builder {settings.builder!r}",
            pointer=f"{pointer}/builder",
            hint=f"its builders are {', '.join(builders)}; load a dataset of the Hub first, "
            "and save it with save_to_disk",
        )
    literal = glob.escape(name)  # the library takes both for patterns
    where = {"data_dir": literal} if settings.path.is_dir() else {"data_files": [literal]}
    try:
        builder = load_dataset_builder(
            settings.builder,
            cache_dir=f"{ctx.cache_dir}/datasets" if ctx.cache_dir else None,
            download_config=DownloadConfig(local_files_only=True),
            **where,
        )
        builder.download_and_prepare()
        splits = list(builder.info.splits or ())
        split = _split(settings, splits, pointer)
        dataset: Dataset = builder.as_dataset(split=split)
    except InvalidData:
        raise
    except Exception as error:  # of the library or of the builder
        cause = error.__cause__ or error
        raise InvalidData(
            f"the builder {settings.builder} cannot read {name}: {type(cause).__name__}: {one_line(str(cause))}",
            pointer=f"{pointer}/path",
            file=name,
        ) from error
    return dataset


def _split(settings: "DatasetsSource.Settings", splits: Sequence[str], pointer: str) -> str:
    """The split that the job chooses, or the only one."""
    if not settings.split and len(splits) == 1:
        return splits[0]
    if settings.split in splits:
        return settings.split
    listed = ", ".join(splits)
    message = f"has no split {settings.split!r}" if settings.split else f"has {len(splits)} splits, and none is chosen"
    raise InvalidData(
        f"{settings.path} {message}",
        pointer=f"{pointer}/split",
        file=str(settings.path),
        hint=f"set split to one of: {listed}",
    )
