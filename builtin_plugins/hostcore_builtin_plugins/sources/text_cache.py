"""Text files as Parquet files of this machine: where they are, and how a text is converted once.

A converted file lies in the folder for downloads, under a name made of the text's name and version and of the settings
that matter. So it is never replaced by another while a run reads it, whose machine may have another text of that name.
"""

import fcntl
import hashlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from hostcore_builtin_plugins.sources.files import DataFile
from hostcore_hookspecs import InvalidData

#: Key of the metadata of a converted file with the text that it was made of.
_MADE_OF = b"hostcore.text"


def converted(
    folder: Path, file: DataFile, settings: Mapping[str, Any], convert: Callable[[Path, dict[bytes, bytes]], None]
) -> Path:
    """Return the Parquet file of a text: that of an earlier run, or one that is made now.

    :param settings: What the rows depend on besides the file; plain JSON.
    :param convert: Writes a new file with some metadata.
    :raises InvalidData: The folder cannot be written, or is full.
    """
    identity = orjson.dumps(_identity(file, settings), option=orjson.OPT_SORT_KEYS)
    path = folder / f"{hashlib.sha256(identity).hexdigest()[:32]}.parquet"
    made_of = {_MADE_OF: identity if _has_mark(file) else identity + uuid.uuid4().bytes}  # else converted each time
    if _is_made_of(path, made_of):
        return path
    making = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with _writing(file, folder), alone(path.with_suffix(".lock")):  # ranks of a machine convert a text once
        if not _is_made_of(path, made_of):
            try:
                convert(making, made_of)
                making.replace(path)
            finally:
                making.unlink(missing_ok=True)
    return path


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Wait until no other process is here, with the same file.

    :param lock: The file; it is made in a folder that is made, too, and stays.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def _is_made_of(path: Path, made_of: Mapping[bytes, bytes]) -> bool:
    """Return True if there is a whole file, of this very text."""
    try:
        return (pq.read_metadata(path).metadata or {}).get(_MADE_OF) == made_of[_MADE_OF]
    except (pa.ArrowInvalid, OSError):
        return False


def _identity(file: DataFile, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the identity of a text as it is now, as plain JSON."""
    name = os.fsencode(file.name).decode(errors="backslashreplace")
    found: dict[str, Any] = {"file": name, "version": file.version, "settings": settings, "pyarrow": pa.__version__}
    if file.place is None:
        # Tools can reset the time of modification; the inode's change time cannot be set.
        status = Path(file.path).stat()
        found["changed"] = [status.st_ino, status.st_ctime_ns]
    return found


def _has_mark(file: DataFile) -> bool:
    """Return True if something changes whenever the content of a text does."""
    return file.place is None or bool(file.marks.keys() & {"etag", "changed"})


@contextmanager
def _writing(file: DataFile, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidData(
            f"{file.name} cannot be converted to Parquet in {folder}: {(error.strerror or str(error)).lower()}",
            file=str(folder),
            hint="make room there, or set HOSTCORE_CACHE_DIR to a folder on another disk that can be written",
        ) from error
