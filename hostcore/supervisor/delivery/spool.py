"""The folder ``spool``: copies of documents that may change while they are uploaded.

::

    spool/logs-events.jsonl.3-1f2e3d4c/logs/events.jsonl

Copies belong to one process: the next removes what a process that was killed has left.
"""

import itertools
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from hostcore.supervisor.delivery.units import Unit, UnitFile

#: Bytes that a copy leaves free on the disk, or a twentieth of a small one.
_ROOM_BYTES: Final = 1 << 30


class Spool:
    """Copies of documents, as they are at one moment. The folder is made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._token = secrets.token_hex(4)
        self._numbers = itertools.count()

    def copy(self, unit: Unit) -> Unit:
        """Copy a document as it is now: of a log that grows, the lines that are complete.

        :raises OSError: When it cannot be copied.
        """
        target = self.folder / f"{unit.name.replace('/', '-')}.{next(self._numbers)}-{self._token}"
        try:
            for file in unit.files:
                path = target / file.relative_path
                path.parent.mkdir(parents=True, exist_ok=True)
                _copy_whole_lines(file.path, path)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise

        def at_target(file: UnitFile) -> UnitFile:
            return attrs.evolve(file, path=target / file.relative_path)

        return attrs.evolve(unit, files=tuple(map(at_target, unit.files)), spooled=target)

    def has_room_for(self, size: int) -> bool:
        """Return True if a copy of so many bytes leaves enough of the disk to the run itself."""
        disk = shutil.disk_usage(self.folder.parent)
        return disk.free - size > min(_ROOM_BYTES, disk.total // 20)

    def clear(self) -> Iterator[Path]:
        """Remove the copies that earlier processes have left. Called while no other process uses the folder.

        :return: What an earlier version of hostcore kept here for its upload, checkpoints and samples: it stays.
        """
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if self._token in path.name:
                continue
            if not path.name.startswith(".") and ((path / "checkpoints").is_dir() or (path / "samples").is_dir()):
                yield path
            else:
                shutil.rmtree(path, ignore_errors=True)

    def drop(self, unit: Unit) -> None:
        """Remove the copy of a unit, if there is one, and the folder with the last of them."""
        if unit.spooled is not None:
            shutil.rmtree(unit.spooled, ignore_errors=True)
            with suppress(OSError):
                self.folder.rmdir()


def _copy_whole_lines(source: Path, target: Path) -> None:
    """Copy what a file holds now; a line of a log that is being written is left to the next copy."""
    with source.open("rb") as content, target.open("wb") as copy:
        left = os.fstat(content.fileno()).st_size
        while left and (chunk := content.read(min(left, 1 << 20))):
            copy.write(chunk)
            left -= len(chunk)
    if source.suffix == ".jsonl":
        _cut_torn_line(target)


def _cut_torn_line(path: Path) -> None:
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            begin = max(0, end - 65536)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                file.truncate(begin + found + 1)
                return
            end = begin
        file.truncate(0)
