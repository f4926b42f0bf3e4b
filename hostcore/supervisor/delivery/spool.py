"""The spool: what waits for its upload, kept by hard links, so that pruning cannot take it away before.

::

    spool/step-000200.1f2e3d4c5b6a/checkpoints/step-000200/…, step-000200.json     a checkpoint, whole and readable
    spool/samples-step-000200-0.8c01f-…/samples/step-000200/0/…                    a generated sample
    spool/logs-events.jsonl.3-a41f/logs/events.jsonl                               a copy of a log that grows

A unit appears under its name when it is complete, and loses its name before it is taken apart: whatever else a process
that was killed has left has a hidden name, and is removed by the next.
"""

import itertools
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import load_record
from hostcore.supervisor.delivery.units import (
    ArtifactFolder,
    Unit,
    UnitFile,
    Vanished,
    committed_again,
    committed_unit,
    is_unchanged,
    sample_unit,
)

#: How often a checkpoint may be replaced while it is linked.
_TRIES: Final = 5
#: What a copy leaves free on the disk, or a twentieth of a small one.
_ROOM_BYTES: Final = 1 << 30


class Spool:
    """The folder ``spool``; made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._token = secrets.token_hex(4)
        self._numbers = itertools.count()

    def link(self, unit: Unit) -> Unit:
        """A unit, linked into the spool; a checkpoint as its record has it now.

        :raises Vanished: When it is not there any more.
        :raises OSError: When the file system has no links, or not between these two folders.
        """
        if unit.seal is None:
            try:
                return self._bring_in(unit, os.link)
            except FileNotFoundError as error:
                raise Vanished(str(error)) from error
        for _ in range(_TRIES):
            # Looked up now: what is pruned by now may be in the spool already, and must not be dropped from there.
            unit = committed_again(unit)
            try:
                linked = self._bring_in(unit, os.link)
            except FileNotFoundError:
                continue  # pruned or replaced in this moment; the next look at its record tells
            # A step that is written again withdraws its record before anything else.
            if is_unchanged(unit):
                return linked
            self.drop(linked)
        raise Vanished(f"{unit.name} was removed or replaced while it was looked at")

    def copy(self, unit: Unit) -> Unit:
        """A unit, copied into the spool, as much as there is now.

        :raises OSError: When it cannot be copied.
        """
        return self._bring_in(unit, _copy_whole_lines, stem_suffix=f".{next(self._numbers)}-{self._token}")

    def _bring_in(self, unit: Unit, bring: Callable[[Path, Path], None], *, stem_suffix: str = "") -> Unit:
        name = unit.name.rpartition("/")[2] if unit.kind == "checkpoint" else unit.name.replace("/", "-")
        target = self.folder / f"{name}{stem_suffix or f'.{unit.version}'}"
        if not target.is_dir():
            making = self.folder / f".{next(self._numbers)}.{self._token}.making"
            try:
                for file in unit.all_files:
                    path = making / file.relative_path
                    path.parent.mkdir(parents=True, exist_ok=True)
                    bring(file.path, path)
                making.mkdir(parents=True, exist_ok=True)  # a sample may be empty
                _rename_unless_there(making, target)
            except BaseException:
                shutil.rmtree(making, ignore_errors=True)
                raise
        return _moved(unit, target)

    def has_room_for(self, size: int) -> bool:
        """Whether a copy of so many bytes leaves enough of the disk to the run itself."""
        disk = shutil.disk_usage(self.folder.parent)
        return disk.free - size > min(_ROOM_BYTES, disk.total // 20)

    def recover(self) -> Iterator[Unit]:
        """What earlier processes have left to be uploaded, oldest first; what they left half-done is removed.

        Copies of documents are removed, too: the originals are there. Called while no other process uses it; units
        that this object has made meanwhile are left alone.
        """
        units = []
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if path.name.startswith("."):
                if f".{self._token}." not in path.name:
                    shutil.rmtree(path, ignore_errors=True)
                continue
            unit = _recovered(path)
            if unit is not None:
                units.append(unit)
            elif self._token not in path.name:
                self._remove(path)
        yield from sorted(units, key=lambda unit: unit.saved_ns)

    def drop(self, unit: Unit) -> None:
        """Take a unit out of the spool."""
        if unit.spooled is not None:
            self._remove(unit.spooled)

    def _remove(self, path: Path) -> None:
        gone = self.folder / f".{next(self._numbers)}.{self._token}.gone"
        with suppress(OSError):  # what cannot be removed now has a hidden name, and the next process tries again
            path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def remove_if_empty(self) -> None:
        """Remove the folder, unless something waits in it."""
        with suppress(OSError):
            self.folder.rmdir()


def bytes_held(unit: Unit) -> int:
    """Bytes that the spool alone holds: of files that have no other name any more."""
    held = 0
    for file in unit.all_files if unit.spooled else ():
        with suppress(OSError):
            status = file.path.stat()
            held += status.st_size if status.st_nlink == 1 else 0
    return held


def _moved(unit: Unit, target: Path) -> Unit:
    """A unit whose files lie below a folder of the spool."""

    def at_target(file: UnitFile) -> UnitFile:
        return attrs.evolve(file, path=target / file.relative_path)

    return attrs.evolve(
        unit,
        files=tuple(map(at_target, unit.files)),
        seal=at_target(unit.seal) if unit.seal else None,
        spooled=target,
        waits_since=target.stat().st_mtime,
    )


def _recovered(path: Path) -> Unit | None:
    """What a folder of the spool holds; None for a document, or for nothing that can be read."""
    for name in ("checkpoints", "samples"):
        place = ArtifactFolder(folder=path / name, name=name)
        if not place.folder.is_dir():
            continue
        try:
            if name == "checkpoints":
                (record,) = place.folder.glob("*.json")
                unit = committed_unit(place, load_record(record).record.step)
            else:
                (sample,) = place.folder.glob("*/*")
                unit = sample_unit(place, sample.relative_to(place.folder).as_posix())
                version = path.name.rpartition(".")[2]
                unit = attrs.evolve(unit, version=version)
        except (ValueError, Vanished, CheckpointError):
            return None
        return attrs.evolve(unit, spooled=path, waits_since=path.stat().st_mtime)
    return None


def _rename_unless_there(making: Path, target: Path) -> None:
    try:
        making.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(making, ignore_errors=True)  # another thread was as fast


def _copy_whole_lines(source: Path, target: Path) -> None:
    """Copy what a log holds now; a line that is just being written is left to the next copy."""
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
