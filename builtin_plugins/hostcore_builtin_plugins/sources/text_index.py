"""The index of a text file: where its parts are, how many rows they have, and the types that fit all of them.

A text has none of this itself, so all of it is read once. What was found is kept in the folder for downloads, under
a name made of the file and of the settings that matter; it is taken only if it belongs to the very file that is there.
"""

import hashlib
import tempfile
import warnings
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import orjson
import pyarrow as pa

from hostcore_builtin_plugins.sources.files import DataFile

#: Changes whenever an index of before would not be made now.
_FORMAT = "hostcore.text-index/1"
#: Smaller files are read again faster than an index would be worth a file of its own.
_SMALLEST_FILE = 1 << 20


@attrs.frozen(kw_only=True)
class TextStretch:
    """Whole records that follow each other."""

    #: Begin and end, in bytes, after unpacking.
    start: int
    end: int
    num_rows: int
    #: CRC-32 of the bytes.
    checksum: int


@attrs.frozen(kw_only=True)
class TextIndex:
    """Columns and stretches of a text file."""

    schema: pa.Schema
    #: How records are told apart, as the format calls it.
    records: str
    stretches: Sequence[TextStretch]


class IndexCache:
    """Indexes of earlier runs. Several processes may keep the same one at once; each of them writes a whole file.

    :param folder: Where downloads are kept; empty: nothing is kept.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) / "text-index" if folder else None

    def find(self, file: DataFile, settings: Mapping[str, Any]) -> TextIndex | None:
        """The index of a file as it is now, if there is one; a damaged one is as good as none.

        :param settings: What an index depends on besides the file; plain JSON.
        """
        path = self._path(file, settings)
        if path is None:
            return None
        try:
            checksum, _, content = path.read_bytes().partition(b"\n")
        except OSError:
            return None
        if hashlib.sha256(content).hexdigest().encode() != checksum:
            return None
        found = orjson.loads(content)
        if found["of"] != _identity(file, settings):
            return None
        return TextIndex(
            schema=pa.ipc.read_schema(pa.py_buffer(b64decode(found["schema"]))),
            records=found["records"],
            stretches=[
                TextStretch(start=start, end=end, num_rows=rows, checksum=checksum)
                for start, end, rows, checksum in found["stretches"]
            ],
        )

    def keep(self, file: DataFile, settings: Mapping[str, Any], index: TextIndex) -> None:
        """Keep an index for the next run. Warn where that is not possible."""
        path = self._path(file, settings)
        if path is None:
            return
        stretches = [(part.start, part.end, part.num_rows, part.checksum) for part in index.stretches]
        schema = b64encode(index.schema.serialize().to_pybytes()).decode()
        content = orjson.dumps(
            {"of": _identity(file, settings), "schema": schema, "records": index.records, "stretches": stretches}
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".index-", delete=False) as target:
                target.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
            Path(target.name).replace(path)
        except OSError as error:
            message = f"the index of {file.name} cannot be kept, and will be made again: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _path(self, file: DataFile, settings: Mapping[str, Any]) -> Path | None:
        is_small = file.size is not None and file.size < _SMALLEST_FILE
        is_known = file.place is None or file.marks.keys() & {"etag", "changed"}
        if self._folder is None or is_small or not is_known:
            return None
        key = orjson.dumps([_FORMAT, file.name, settings], option=orjson.OPT_SORT_KEYS)
        return self._folder / f"{hashlib.sha256(key).hexdigest()[:32]}.json"


def _identity(file: DataFile, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the identity of the file of an index, as plain JSON."""
    found: dict[str, Any] = {
        "format": _FORMAT,
        "file": file.name,
        "version": file.version,
        "settings": settings,
        "pyarrow": pa.__version__,  # which finds the types
    }
    if file.place is None:
        # Tools can reset the time of modification; the inode's change time cannot be set.
        status = Path(file.path).stat()
        found["changed"] = [status.st_ino, status.st_ctime_ns]
    return found
