"""What is fetched of a run: what says how it stands, and the newest checkpoint that verifies."""

import shutil
from collections.abc import Callable
from pathlib import Path

from hostcore.checkpoints.durable import fsync_folder, move, write_file
from hostcore.checkpoints.find import Found
from hostcore.checkpoints.names import record_name
from hostcore.runs.attempts import read_claim
from hostcore.runs.directory import RunDirectory
from hostcore.runs.result import RunResult
from hostcore.supervisor.mirror.checkpoints import bring_newest
from hostcore.supervisor.mirror.place import Mirror
from hostcore.supervisor.remote.errors import StoreError
from hostcore.supervisor.remote.store import Location
from hostcore.supervisor.remote.transfer import Wanted, bring

Tell = Callable[[str], object]


def fetch_run(mirror: Mirror, target: Path, checkpoints: Path | None, tell: Tell) -> None:
    """Make a run directory from a mirror.

    :param target: Does not exist.
    :param checkpoints: Where the checkpoint goes, if not into the run directory.
    :raises StoreError: When the store cannot be read.
    """
    directory = RunDirectory(target)
    directory.make()
    attempts = mirror.attempts()
    for name in ("config/run.json", *(f"attempts/{number}.json" for number in attempts), "result.json"):
        content = mirror.place.below(name).read()
        if content is not None:
            write_file(target / name, [content])
        elif name != "result.json":  # it was there a moment ago
            raise StoreError(f"{mirror.uri}/{name} is gone", code="store.missing", file=mirror.uri)
    _bring_log(mirror.place.below("logs/events.jsonl"), directory.events)
    _tell_of_end(directory, max(attempts, default=0), tell)
    committed, abandoned = mirror.steps()
    folder = mirror.place.below("checkpoints")
    found = bring_newest(folder, committed, abandoned, directory.checkpoints, tell)
    if found is None and committed:
        tell(f"none of the {len(committed)} checkpoints in {folder.uri} verifies: the run starts again at step 0")
    if found is not None and checkpoints is not None:
        _move_to(checkpoints, found)
    for path in (target, *(path for path in target.rglob("*") if path.is_dir())):
        fsync_folder(path)


def _bring_log(place: Location, target: Path) -> None:
    """Bring the event log here, which may be large. A run that had no time to copy it begins another."""
    try:
        bring(place.filesystem, [Wanted(source=place.path, uri=place.uri, target=target)], label="events")
    except StoreError as error:
        if error.code != "store.missing":
            raise
        target.unlink(missing_ok=True)


def _tell_of_end(directory: RunDirectory, attempt: int, tell: Tell) -> None:
    """Say so if the end of the newest attempt is not recorded: it may still be running elsewhere."""
    result, claim = RunResult.read(directory.result), read_claim(directory.attempts, attempt)
    if claim is not None and (result is None or result.attempt < attempt):
        process = f"process {claim.process.pid} on {claim.process.host}"
        tell(f"its attempt {attempt} ({process}) has no end in the mirror: see that it does not run any more")


def _move_to(checkpoints: Path, found: Found) -> None:
    """Move a checkpoint to where the environment says that checkpoints lie, unless it is there: the record last."""
    record = found.folder.with_name(record_name(found.record.step))
    target = checkpoints / found.folder.name
    if target.exists():
        return
    checkpoints.mkdir(parents=True, exist_ok=True)
    hidden = checkpoints / f".{found.folder.name}.adopted"
    shutil.rmtree(hidden, ignore_errors=True)
    shutil.move(found.folder, hidden)  # may be on another disk
    move(hidden, target)
    shutil.copyfile(record, hidden.with_suffix(".json"))
    move(hidden.with_suffix(".json"), checkpoints / record.name)
    record.unlink()
