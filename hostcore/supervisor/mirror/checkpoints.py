"""Checkpoints that lie in a store, brought here and compared with their commit records, byte by byte."""

import shutil
from collections.abc import Callable
from pathlib import Path

from hostcore.checkpoints.durable import fsync_folder, write_file
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import Found
from hostcore.checkpoints.names import folder_name, record_name
from hostcore.checkpoints.record import CommitRecord
from hostcore.supervisor.remote.errors import StoreError, told_of
from hostcore.supervisor.remote.store import Location

#: What a store says of a checkpoint that is damaged; everything else says something of the store.
_DAMAGE = frozenset({"store.missing", "store.content"})


def bring_newest(
    folder: Location, committed: list[int], abandoned: list[int], target: Path, tell: Callable[[str], object]
) -> Found | None:
    """Bring the newest checkpoint here that verifies.

    :param folder: The ``checkpoints`` of a mirror.
    :param committed: The steps that have a commit record, newest first.
    :param abandoned: The steps that have a folder alone.
    :param target: An empty folder.
    :param tell: Gets a line about each one that is passed over.
    :return: None if none verifies.
    :raises StoreError: When the store cannot be read.
    """
    for step in sorted({*committed, *abandoned}, reverse=True):
        try:
            if step not in committed:
                raise CheckpointError("it has no commit record, so it was never copied as a whole")
            return bring(folder, step, target)
        except (CheckpointError, StoreError) as error:
            if isinstance(error, StoreError) and error.code not in _DAMAGE:
                raise
            tell(f"the checkpoint {folder.uri}/{folder_name(step)} is passed over: {error.message}")
    return None


def bring(folder: Location, step: int, target: Path) -> Found:
    """Bring a checkpoint here: its files, and its record last.

    :param folder: The folder of checkpoints that it lies in.
    :param target: A folder of this machine, for folder and record.
    :raises CheckpointError: When it is not there, or is not what its record says.
    :raises StoreError: When the store cannot be read.
    """
    from hostcore.supervisor.remote.transfer import Wanted
    from hostcore.supervisor.remote.transfer import bring as bring_files

    content, record = read_record(folder, step)
    local = target / record.folder_name
    remote = folder.below(record.folder_name)
    wanted = [
        Wanted(
            source=remote.below(file.path).path,
            uri=remote.below(file.path).uri,
            target=local / file.path,
            size=file.size,
            sha256=file.sha256,
        )
        for file in record.files
    ]
    try:
        with told_of(remote.uri, pointer=folder.pointer):
            local.mkdir(parents=True)
            bring_files(remote.filesystem, wanted, label=record.folder_name, pointer=folder.pointer)
            for inner in (path for path in local.rglob("*") if path.is_dir()):
                fsync_folder(inner)
            fsync_folder(local)
            write_file(target / record_name(step), [content])
            fsync_folder(target)
    except BaseException:
        shutil.rmtree(local, ignore_errors=True)
        raise
    return Found(record=record, folder=local)


def read_record(folder: Location, step: int) -> tuple[bytes, CommitRecord]:
    """The commit record of a checkpoint in a store, as it is and as it reads.

    :raises CheckpointError: When there is none, or it is none.
    :raises StoreError: When the store cannot be asked.
    """
    place = folder.below(record_name(step))
    content = place.read()
    if content is None:
        raise CheckpointError(
            f"there is no commit record {place.uri}",
            code="checkpoint.not_found",
            pointer=folder.pointer,
            file=place.uri,
        )
    try:
        record = CommitRecord.from_json(content)
    except CheckpointError as error:
        error.file = place.uri
        raise
    if record.step != step:
        raise CheckpointError(
            f"the commit record is of step {record.step}, but it is named as step {step}",
            code="checkpoint.record",
            file=place.uri,
        )
    return content, record
