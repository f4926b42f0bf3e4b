"""Where units come from: checkpoints, generated samples and documents, where the run has put them."""

import hashlib
import time
from pathlib import Path
from typing import Final

import attrs

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.names import record_name, step_of_folder
from hostcore.checkpoints.record import CommitRecord
from hostcore.supervisor.uploads.unit import Turn, Unit, UnitFile

_VERSION_LENGTH: Final = 12


class Vanished(Exception):
    """It was removed before it could be linked."""


@attrs.frozen(kw_only=True)
class Place:
    """Where checkpoints or samples lie, and where they belong below the run directory."""

    folder: Path
    #: ``checkpoints`` or ``samples``, wherever the folder is.
    name: str


def committed_unit(place: Place, step: int) -> Unit:
    """The checkpoint of a step where it lies.

    :raises Vanished: When there is none.
    """
    record_path = place.folder / record_name(step)
    try:
        content, saved_ns = record_path.read_bytes(), record_path.stat().st_mtime_ns
        record = CommitRecord.from_json(content, file=record_path)
    except (OSError, CheckpointError) as error:
        raise Vanished(str(error)) from error
    folder = place.folder / record.folder_name
    files = tuple(
        UnitFile(
            kind="checkpoint",
            path=folder / file.path,
            relative_path=f"{place.name}/{record.folder_name}/{file.path}",
            size=file.size,
            sha256=file.sha256,
        )
        for file in record.files
    )
    digest = hashlib.sha256(content).hexdigest()
    seal = UnitFile(
        kind="commit",
        path=record_path,
        relative_path=f"{place.name}/{record_path.name}",
        size=len(content),
        sha256=digest,
    )
    return Unit(
        kind="checkpoint",
        name=f"{place.name}/{record.folder_name}",
        version=digest[:_VERSION_LENGTH],
        files=files,
        seal=seal,
        step=record.step,
        final=record.final,
        saved_ns=saved_ns,
        waits_since=time.time(),
    )


def sample_unit(place: Place, relative: str) -> Unit:
    """A generated sample where it lies. Its files have no SHA-256 yet.

    :param relative: Below the folder of samples: ``step-000200/0``.
    :raises Vanished: When there is none.
    """
    folder = place.folder / relative
    try:
        status = folder.stat()
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        files = tuple(
            UnitFile(
                kind="sample",
                path=path,
                relative_path=f"{place.name}/{relative}/{path.relative_to(folder).as_posix()}",
                size=path.stat().st_size,
            )
            for path in paths
        )
    except OSError as error:
        raise Vanished(str(error)) from error
    return Unit(
        kind="sample",
        name=f"{place.name}/{relative}",
        version=f"{status.st_ino:x}-{status.st_mtime_ns:x}",
        files=files,
        step=step_of_folder(Path(relative).parts[0]),
        saved_ns=status.st_mtime_ns,
        waits_since=time.time(),
    )


def document_unit(path: Path, relative_path: str, *, kind: str, turn: Turn = Turn.USUAL, is_log: bool = False) -> Unit:
    """A document where it lies, hashed.

    :raises OSError: When it cannot be read.
    """
    status = path.stat()
    file = UnitFile(kind=kind, path=path, relative_path=relative_path, size=status.st_size)
    unit = Unit(
        kind="document",
        name=relative_path,
        version="",
        files=(file,),
        turn=turn,
        is_log=is_log,
        saved_ns=status.st_mtime_ns,
        waits_since=time.time(),
    ).hashed()
    return attrs.evolve(unit, version=unit.files[0].sha256[:_VERSION_LENGTH])


def is_unchanged(unit: Unit) -> bool:
    """Whether a checkpoint that lies in its own place is still the one that it was."""
    if unit.seal is None:
        return all(file.path.is_file() for file in unit.files)
    try:
        return hashlib.sha256(unit.seal.path.read_bytes()).hexdigest() == unit.seal.sha256
    except OSError:
        return False
