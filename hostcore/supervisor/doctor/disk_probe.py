"""``python -m hostcore.supervisor.doctor.disk_probe FOLDER``: writing there as a checkpoint does.

In a process of its own, since a call to a file server that is gone never returns. Speaks as
:mod:`hostcore.probe` says.
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

_LARGE_BYTES: Final = 8 << 20
_SMALL_TIMES: Final = 5


def main(folder: Path) -> None:
    """Tell where the folder would lie, on what, and how writing goes. What is written is removed."""
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


def space_of(folder: Path) -> dict[str, Any]:
    """The free space of the disk of a folder, and how many more files it can have: None where that is not limited."""
    disk = os.statvfs(folder)
    space = {"free_bytes": disk.f_bavail * disk.f_frsize, "total_bytes": disk.f_blocks * disk.f_frsize}
    return {**space, "free_names": disk.f_favail if disk.f_files else None}


def _commit(place: Path, name: str) -> float:
    """The seconds that a small file takes to be there for good, under its last name."""
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
    """What the kernel calls the file system of a path: ``ext4``; None where it does not say."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:  # not Linux
        return None
    real = path.resolve()
    found: tuple[Path, str | None] = (Path(), None)
    for line in mounts:
        left, _, right = line.partition(" - ")
        # Spaces and the like are octal there; of several mounts at one place the last counts.
        point = Path(left.split()[4].encode().decode("unicode_escape"))
        if real.is_relative_to(point) and len(point.parts) >= len(found[0].parts):
            found = (point, right.split()[0])
    return found[1]


def _say(**content: Any) -> None:
    print(json.dumps(content), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
