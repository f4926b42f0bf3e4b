"""Checkpoints that lie in a store, brought here and compared with their commit records, byte by byte.

The one that a run begins from goes to the cache::

    <cache>/checkpoints/<SHA-256 of the commit record>/step-000200/, step-000200.json
"""

import hashlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from hostcore.checkpoints.durable import fsync_folder, write_file
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import Found, load_record, newest, verify
from hostcore.checkpoints.names import folder_name, record_name, step_of_folder, step_of_record
from hostcore.checkpoints.record import CommitRecord
from hostcore.job.paths import is_uri
from hostcore.runs.directory import cache_dir
from hostcore.runs.record import RunRecord
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.remote.cache import put_in_place, sync_folders
from hostcore.supervisor.remote.mirror import options_for, untrusted
from hostcore_builtin_plugins.stores.errors import ObjectMissing, WrongContent, store_errors
from hostcore_builtin_plugins.stores.location import Location


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
        except (CheckpointError, ObjectMissing, WrongContent) as error:  # every other one says something of the store
            tell(f"the checkpoint {folder.uri}/{folder_name(step)} is passed over: {error.message}")
    return None


def bring(folder: Location, step: int, target: Path) -> Found:
    """Bring a checkpoint here: its files, and its record last.

    :param folder: The folder of checkpoints that it lies in.
    :param target: A folder of this machine, for folder and record.
    :raises CheckpointError: It is not there, or differs from its record.
    :raises StoreError: When the store cannot be read.
    """
    from hostcore_builtin_plugins.stores.get import Wanted
    from hostcore_builtin_plugins.stores.get import bring as bring_files

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
        with store_errors(remote.uri, pointer=folder.pointer):
            local.mkdir(parents=True)
            bring_files(remote.filesystem, wanted, label=record.folder_name, pointer=folder.pointer)
            sync_folders(local)
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


Tell = Callable[[str], object]

_RESUME = "/resume_from_checkpoint"


def fetch_parent(plan: RunPlan, tell: Tell) -> str:
    """Bring the checkpoint here that a run begins from, if the job or the run's record names it by a URI.

    :param tell: Gets a line about what people should know.
    :return: Its commit record on this machine, absolute; empty if there is nothing to fetch.
    :raises CheckpointError: It is not there, or differs from its record.
    :raises StoreError: When it cannot be read.
    """
    uri = plan.spec.begins_from or _recorded_parent(plan)
    if not is_uri(uri):
        return ""
    return str(fetch_checkpoint(uri, options_for(uri, plan.spec), tell, pointer=_RESUME))


def _recorded_parent(plan: RunPlan) -> str:
    """The checkpoint that a run was begun from, if it needs it still: while it has none of its own that verifies."""
    try:
        parent = RunRecord.read(plan.directory.record).parent or ""
    except FileNotFoundError:
        return ""
    return "" if not is_uri(parent) or newest(plan.checkpoints_dir).found else parent


def fetch_checkpoint(uri: str, options: Mapping[str, Any], tell: Tell, *, pointer: str | None = None) -> Path:
    """Bring a checkpoint to the cache, unless it is there.

    :param uri: Of its commit record or its folder: ``s3://bucket/…/checkpoints/step-000200.json``.
    :param options: For the file system: fsspec's ``storage_options``.
    :param tell: Gets a line about what people should know.
    :param pointer: Where the job names it.
    :return: Its commit record on this machine, absolute.
    :raises CheckpointError: It is not there, or differs from its record.
    :raises StoreError: When it cannot be read.
    """
    parent, _, name = uri.rstrip("/").rpartition("/")
    step = step_of_record(name)
    step = step_of_folder(name) if step is None else step
    if step is None:
        raise CheckpointError(
            f"{uri} is not a checkpoint",
            code="checkpoint.not_found",
            pointer=pointer,
            file=uri,
            hint="name its commit record, such as s3://bucket/…/checkpoints/step-000200.json",
        )
    folder = untrusted(Location.of(parent, options, pointer=pointer))
    try:
        content, _ = read_record(folder, step)
        kept = cache_dir() / "checkpoints" / hashlib.sha256(content).hexdigest()
        record = kept / record_name(step)
        if not _is_whole(record):
            tell(f"fetching the checkpoint {uri}")
            with store_errors(uri, pointer=pointer):
                temporary = kept.with_name(f".{kept.name}.{uuid4().hex}.tmp")
                try:
                    temporary.mkdir(parents=True)
                    bring(folder, step, temporary)
                    put_in_place(temporary, kept, lambda: _is_whole(record))
                finally:
                    shutil.rmtree(temporary, ignore_errors=True)
    except CheckpointError as error:
        error.pointer = error.pointer or pointer
        raise
    return record


def _is_whole(record: Path) -> bool:
    try:
        found = load_record(record)
        verify(found.folder.parent, found.record)
    except CheckpointError:
        return False
    return True
