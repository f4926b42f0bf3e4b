"""Data sources of files: the settings that they share, and the way from these to a dataset."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs

from hostcore_builtin_plugins.sources.data_files import find_files
from hostcore_builtin_plugins.sources.file_dataset import FileDataset, FileFormat, job_pointer
from hostcore_hookspecs import DataContext, InvalidSettings

STORAGE_OPTIONS: Final[Any] = attrs.field(
    factory=dict, metadata={"help": "For the file systems of URIs, as fsspec takes them."}
)
ALLOW_NULLS: Final[Any] = attrs.field(default=False, metadata={"help": "Let nulls in numeric columns through."})


class FileSource(ABC):
    """Opens the files of one format as a dataset.

    :param settings: They have ``storage_options``, ``allow_nulls``, and the files under ``paths_key``.
    """

    paths_key: ClassVar[str] = "paths"

    def __init__(self, *, settings: Any) -> None:
        if not getattr(settings, self.paths_key):
            raise InvalidSettings(f"/{self.paths_key}", "names no file")
        self.settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> FileDataset:
        """Find the files, and read their indexes."""
        settings, found = self.settings, self.file_format(ctx)
        files = find_files(
            getattr(settings, self.paths_key),
            suffixes=found.suffixes,
            storage_options=settings.storage_options,
            pointer=f"{job_pointer(ctx)}/{self.paths_key}",
        )
        return FileDataset(files, lambda _: found, dataset=dataset, ctx=ctx, allow_nulls=settings.allow_nulls)

    @abstractmethod
    def file_format(self, ctx: DataContext) -> FileFormat:
        """Return the format of the files."""
