"""The first rows of another data source: so that an epoch of any example is a matter of a few steps."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
from annotated_types import Ge

from hostcore.job.load import load_job
from hostcore.job.names import DATA_SECTIONS
from hostcore.plugins.hooks import Hooks
from hostcore.plugins.load import load_component
from hostcore.plugins.resolve import Selected, resolve
from hostcore_conformance.subject import installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from hostcore.job.sections import DatasetSpec
    from hostcore_hookspecs import DataContext, Shard
    from hostcore_hookspecs.data_source import Dataset

SOURCE: Final = "hostcore_conformance.excerpt:DataExcerpt"


class DataExcerpt:
    """Opens what another source opens, and ends it after some rows."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Source of the excerpt."""

        #: The name of the other source, its settings, and the whole object of the job.
        original: str
        settings: Mapping[str, Any]
        whole: Mapping[str, Any]
        #: The folder that relative paths in the settings start at.
        folder: str
        rows: Annotated[int, Ge(1)]

    def __init__(self, *, settings: Settings) -> None:
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: "DataContext") -> "Beginning":  # noqa: ARG002
        """Open the other source's dataset."""
        given = self._settings
        ref = resolve(given.original, "data_source", installed())
        selected = Selected(ref=ref, settings=given.settings, named_at="/source")
        source = load_component(selected, job_dir=Path(given.folder), import_paths=True)
        open_dataset = Hooks([source], kinds=("data_source",)).bind("open_dataset", of=source)
        assert open_dataset is not None
        return Beginning(open_dataset(given.whole, ctx), given.rows)


class Beginning:
    """The first rows of a dataset. Whatever else that has is there, too."""

    def __init__(self, whole: "Dataset", rows: int) -> None:
        self._whole = whole
        self._shards: list[Shard] = []
        self._originals: dict[str, Shard] = {}
        for shard in whole.shards():
            if rows <= 0:
                break
            self._originals[shard.id] = shard
            self._shards.append(attrs.evolve(shard, num_rows=min(shard.num_rows, rows)))
            rows -= shard.num_rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    @property
    def schema(self) -> "pa.Schema":
        """That of the whole."""
        return self._whole.schema

    def shards(self) -> "Sequence[Shard]":
        """The first ones, the last of them shortened."""
        return self._shards

    def read_shard(self, shard: "Shard", columns: "Sequence[str] | None", offset: int) -> "Iterator[pa.RecordBatch]":
        """Read a shard up to where it is cut."""
        left = shard.num_rows - offset
        for batch in self._whole.read_shard(self._originals[shard.id], columns, offset):
            if left <= 0:
                return
            yield batch.slice(0, left)
            left -= batch.num_rows


def shortened(job: Mapping[str, Any], *, folder: Path, steps: int, batches: int = 2) -> dict[str, Any]:
    """A job whose epoch has so many steps, or fewer if there is not as much data. Transformed without processes.

    :param job: Its paths are absolute.
    :param folder: Where import paths and relative paths start.
    :param batches: Of the validation and of the test.
    """
    spec = load_job({"max_steps": 1, **job}, job_dir=folder)
    changed = dict(job)
    for split in DATA_SECTIONS:
        data: DatasetSpec | None = getattr(spec, split)
        if data is None or data.source is None:
            continue
        rows = data.batch_size * (steps * spec.micro_batches if split == "dataset" else batches)
        if split == "dataset":
            rows += data.batch_size // 2  # left over, as in most epochs
        if data.of:
            parts = [
                {"name": one.name, "weight": one.weight, **_excerpt(data.part(one), rows, folder)} for one in data.of
            ]
            changed[split] = {**job[split], "of": parts, "workers": 0}
            continue
        given = {key: value for key, value in job[split].items() if key not in data.settings}
        changed[split] = {**given, **_excerpt(data, rows, folder), "workers": 0}
    return changed


def _excerpt(data: "DatasetSpec", rows: int, folder: Path) -> dict[str, Any]:
    """The source of the first rows of data, with its settings."""
    return {
        "source": SOURCE,
        "original": data.source,
        "settings": dict(data.settings),
        "whole": data.to_json(),
        "folder": str(folder),
        "rows": rows,
    }
