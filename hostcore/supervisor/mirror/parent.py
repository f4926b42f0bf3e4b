"""The checkpoint that a run begins from, if it lies in a store: brought to this machine.

::

    <cache>/checkpoints/<SHA-256 of the commit record>/step-000200/, step-000200.json
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import load_record, newest, verify
from hostcore.checkpoints.names import record_name, step_of_folder, step_of_record
from hostcore.job.paths import is_uri
from hostcore.runs.directory import cache_dir
from hostcore.runs.record import RunRecord
from hostcore.supervisor.plan import RunPlan

Tell = Callable[[str], object]

_RESUME = "/resume_from_checkpoint"


def fetch_parent(plan: RunPlan, tell: Tell) -> str:
    """Bring the checkpoint here that a run begins from, if the job or the run's record names it by a URI.

    :param tell: Gets a line about what people should know.
    :return: Its commit record on this machine, absolute; empty if there is nothing to fetch.
    :raises CheckpointError: When it is not there, or is not what its record says.
    :raises StoreError: When it cannot be read.
    """
    uri = plan.spec.begins_from or _recorded_parent(plan)
    if not is_uri(uri):
        return ""
    from hostcore.supervisor.mirror.place import options_for

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
    :raises CheckpointError: When it is not there, or is not what its record says.
    :raises StoreError: When it cannot be read.
    """
    from hostcore.supervisor.mirror.checkpoints import bring, read_record
    from hostcore.supervisor.remote.errors import told_of
    from hostcore.supervisor.remote.store import Location

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
    folder = Location.of(parent, options, pointer=pointer)
    try:
        content, _ = read_record(folder, step)
        kept = cache_dir() / "checkpoints" / hashlib.sha256(content).hexdigest()
        record = kept / record_name(step)
        if not _is_whole(record):
            tell(f"fetching the checkpoint {uri}")
            with told_of(uri, pointer=pointer):
                temporary = kept.with_name(f".{kept.name}.{os.getpid()}.tmp")
                try:
                    temporary.mkdir(parents=True)
                    bring(folder, step, temporary)
                    _put(temporary, record)
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


def _put(temporary: Path, record: Path) -> None:
    """Give a fetched checkpoint its place, which may hold a damaged one, or one that was just fetched elsewhere."""
    kept = record.parent
    if kept.exists() and not _is_whole(record):
        shutil.rmtree(kept, ignore_errors=True)
    with suppress(FileExistsError):
        temporary.rename(kept)
