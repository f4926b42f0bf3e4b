"""``python -m hostcore_inspect.doctor.disk_probe FOLDER``: write there as a checkpoint does.

In a process of its own, since a call to a lost file server never returns. Answers by :mod:`hostcore.probe`.
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psutil

from hostcore.supervisor.quick_checks import space_of

_LARGE_BYTES: Final = 8 << 20
_SMALL_TIMES: Final = 5


def main(folder: Path) -> None:
    """Report the file system of the folder, its free space, and the speed of writes, which are removed again."""
    try:
        _examine(folder)
    except OSError as error:
        _say(error=error.strerror or str(error), errno=error.errno, file=str(error.filename or folder))
        sys.exit(1)


def _examine(folder: Path) -> None:
    _say(doing=f"looking at {folder}")
    nearest = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    _say(nearest=str(nearest), kind=file_system(nearest))
    _say(doing=f"asking for the free space of {nearest}")
    _say(space=space_of(nearest))
    _say(doing=f"writing to {nearest}")
    place = Path(tempfile.mkdtemp(prefix=".hostcore-doctor-", dir=nearest))
    try:
        content = os.urandom(_LARGE_BYTES)
        started = time.perf_counter()
        _write(place / "large", content)
        large = time.perf_counter() - started
        _say(doing=f"bringing files to the disk in {nearest}")
        small = [_commit(place, str(number)) for number in range(_SMALL_TIMES)]
        _say(written={"bytes": _LARGE_BYTES, "seconds": large, "commit_seconds": statistics.median(small)})
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _commit(place: Path, name: str) -> float:
    """Commit a small file under its last name; return the seconds that it took."""
    started = time.perf_counter()
    _write(place / f".{name}", b"{}")
    (place / f".{name}").rename(place / name)
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return time.perf_counter() - started


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def file_system(path: Path) -> str | None:
    """Return the kernel's name of the file system of a path: ``ext4``; None if it is unknown."""
    real, found, depth = path.resolve(), None, 0
    for mount in psutil.disk_partitions(all=True):  # of several mounts at one place the last counts
        point = Path(mount.mountpoint)
        if real.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = mount.fstype, len(point.parts)
    return found


def _say(**content: Any) -> None:
    print(json.dumps(content), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
