"""The version of a table that a run reads: chosen when the run begins, and the same whenever it is resumed.

Others write to a table while a run reads it. A job may name a version; where it does not, the newest one is noted in
the run directory by the first rank that opens the table, before any row is read. So a resumed run reads the same rows
as before, however much the table has grown.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import attrs
from annotated_types import Ge

from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings, Uri

_FORMAT = "hostcore.table-version/1"


@attrs.frozen(kw_only=True)
class TableSettings:
    """Table and version."""

    path: Path | None = attrs.field(default=None, metadata={"help": "The folder of the table."})
    uri: Uri = attrs.field(
        default="", metadata={"help": "In place of `path`: a table in an object store, such as `s3://bucket/flights`."}
    )
    storage_options: Mapping[str, str] = attrs.field(
        factory=dict, metadata={"help": "For the object store of a URI, as the library takes them."}
    )
    version: Annotated[int, Ge(0)] | None = attrs.field(
        default=None, metadata={"help": "The version to read; the newest one when the run begins, if not given."}
    )
    allow_nulls: bool = attrs.field(default=False, metadata={"help": "Let nulls in numeric columns through."})

    @property
    def location(self) -> str:
        """An absolute path, or a URI."""
        return self.uri or str(self.path)

    @property
    def key(self) -> str:
        """Name of the setting with the table's place."""
        return "uri" if self.uri else "path"

    def check(self) -> None:
        """See that there is one place.

        :raises InvalidSettings: There is none, or there are two.
        """
        if self.path is not None and self.uri:
            raise InvalidSettings("/uri", "the table has a path already: give one of both")
        if self.path is None and not self.uri:
            raise InvalidSettings("/path", "is missing: the folder of the table, or give its uri")
        if self.uri and "://" not in self.uri:
            raise InvalidSettings("/uri", "is no URI: give a folder of this machine as path")


def version_of_run(ctx: DataContext, asked: Mapping[str, Any], choose: Callable[[], int]) -> int:
    """The version that the run has noted for a table; when it has not, the one that is chosen now, which it notes.

    :param asked: The job's settings of the table: plain JSON. Other settings have another note.
    :param choose: Finds the version.
    :raises InvalidData: The note cannot be read.
    """
    if not ctx.run_dir:
        return choose()
    key = hashlib.sha256(json.dumps([_FORMAT, asked], sort_keys=True).encode()).hexdigest()[:16]
    note = Path(ctx.run_dir) / "tables" / f"{key}.json"
    if not note.exists():
        _write_once(note, {"format": _FORMAT, "of": asked, "version": choose()})
    try:
        version = json.loads(note.read_text(encoding="utf-8"))["version"]
        if not isinstance(version, int):
            raise TypeError(f"the version is {version!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidData(
            f"the note about the table's version cannot be read: {error}",
            file=str(note),
            hint="remove it and set dataset.version to the version that the run has read",
        ) from error
    return version


def _write_once(target: Path, content: Mapping[str, Any]) -> None:
    """Write a whole file, unless another rank was first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=".note-", encoding="utf-8") as made:
        json.dump(content, made, indent=1)
        made.flush()
        os.fsync(made.fileno())
        try:
            Path(target).hardlink_to(made.name)
        except FileExistsError:
            return  # the ranks read one version: the first one that was noted
