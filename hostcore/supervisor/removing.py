"""Remove run directories: never that of a run that lives or owes uploads, and never half of it under its own name."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from hostcore.runs.attempts import await_proof
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.runs.statuses import ALIVE
from hostcore.runs.summary import RunSummary, summarize
from hostcore.supervisor.delivery.subscription import mirroring, unique_names
from hostcore.supervisor.delivery.units import Inventory, document_unit
from hostcore.supervisor.opening import RunConflict
from hostcore.supervisor.writable import RunUnwritable
from hostcore_hookspecs.errors import HostcoreError

#: Begins the folders that hold what is being removed.
_PREFIX: Final = ".removing-"


def require_over(directory: RunDirectory, summary: RunSummary) -> None:
    """See that a run may be removed.

    :raises RunConflict: When it is running, or about to, or when its folder is a link.
    """
    if summary.status in ALIVE:
        raise RunConflict(
            f"the run {directory.run_id!r} is {summary.status}, and is not removed",
            file=str(directory.path),
            hint=f"`hostcore cancel {directory.run_id}` ends it",
        )
    if directory.path.is_symlink():
        raise RunConflict(
            f"the directory of the run {directory.run_id!r} is a link, and is not removed",
            file=str(directory.path),
            hint="remove the link, or name the directory that it leads to",
        )


def require_delivered(directory: RunDirectory) -> None:
    """Refuse a run whose uploaders lack something that lies in its directory alone: a checkpoint, or its result.

    The ledger of uploads counts, and no store is asked. A directory without one has never uploaded, as the copy of a
    run that trains elsewhere.

    :raises RunConflict: With the uploaders.
    """
    if any(directory.spool.glob("*/checkpoints")):
        raise RunConflict(
            f"the run {directory.run_id!r} has checkpoints that an earlier version of hostcore kept for their upload",
            file=str(directory.spool),
            hint="copy those that you need; --force removes the run all the same",
        )
    if not (directory.uploads.is_file() and (lacking := _lacking(directory))):
        return
    raise RunConflict(
        f"the run {directory.run_id!r} has not copied everything, and is not removed: {', '.join(lacking)}",
        file=str(directory.uploads),
        hint=f"`hostcore upload {directory.run_id}` copies the rest; --force removes the run all the same",
    )


def _lacking(directory: RunDirectory) -> list[str]:
    """Return the names of the uploaders that lack something."""
    arrived = set()
    for line in directory.uploads.read_bytes().splitlines():
        with suppress(orjson.JSONDecodeError, KeyError, TypeError):  # written by another version
            found = orjson.loads(line)
            arrived.add((found["uploader"], found["path"], found["sha256"]))
    units = list(Inventory.of(directory).committed())
    if directory.result.is_file():
        units.append(document_unit(directory.result, directory.result.name, kind="result"))
    files = [(file.relative_path, file.sha256) for unit in units for file in unit.all_files]
    spec = RunRecord.read(directory.record).spec(with_data=True)
    uses = mirroring(spec.uploaders, spec.checkpoint_base_uri)
    names = unique_names([use.use.rpartition("/")[2] for use in uses])
    return [name for name in names if any((name, *file) not in arrived for file in files)]


def leftovers(runs: Path, before_ms: float) -> Iterator[RunDirectory]:
    """Yield what killed removals have left in a folder of runs: set aside before a time, and of no run that lives."""
    for aside in runs.glob(f"{_PREFIX}*"):
        for path in (one for one in aside.iterdir() if aside.stat().st_mtime * 1000 < before_ms):
            directory = RunDirectory(path)
            try:
                lives = summarize(directory).status in ALIVE
            except HostcoreError:  # half of it is gone
                lives = False
            if not lives:
                yield directory


def remove_leftover(directory: RunDirectory) -> None:
    """Remove what a killed removal has left.

    :raises RunUnwritable: When the system refuses.
    """
    try:
        shutil.rmtree(directory.path.parent)
    except OSError as error:
        raise _refused(directory, error) from error


def remove_run(directory: RunDirectory) -> None:
    """Remove the directory of a run.

    It gets another name first: whoever looks for the run sees a whole one, or none. If it was started in between, it
    gets its name back.

    :raises RunConflict: See :func:`require_over`.
    :raises RunUnwritable: When the system refuses; what could not be removed is in a hidden folder beside it.
    """
    await_proof(directory)  # a supervisor elsewhere may live although its lease is old
    require_over(directory, summarize(directory))
    aside = directory.path.parent / f"{_PREFIX}{directory.run_id}-{os.getpid()}"
    moved = RunDirectory(aside / directory.path.name)
    try:
        aside.mkdir(exist_ok=True)
        try:
            directory.path.rename(moved.path)
            require_over(directory, summarize(moved))
        except BaseException:
            if moved.path.is_dir():
                moved.path.rename(directory.path)
            aside.rmdir()
            raise
        shutil.rmtree(aside)
    except OSError as error:
        raise _refused(directory, error) from error


def _refused(directory: RunDirectory, error: OSError) -> RunUnwritable:
    return RunUnwritable(
        f"the run {directory.run_id!r} could not be removed: {error.strerror or error}",
        file=error.filename or str(directory.path),
        hint="`hostcore gc` removes what is left in a folder .removing-… beside it",
    )


def size_of(directory: RunDirectory) -> int:
    """Bytes of all files of a run; a file with several names counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for folder, _, names in os.walk(directory.path):
        for name in names:
            try:
                status = Path(folder, name).lstat()
            except FileNotFoundError:
                continue
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())
