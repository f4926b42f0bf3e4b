"""Attempts: each start of a run claims the next number, so that two never share one; and the holder of the newest."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import orjson

from hostcore.events.folder_sync import sync_folder
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import CorruptDocument, UnreadableDocument, from_document, read_document
from hostcore.runs.lease import Lease, ProcessIdentity
from hostcore_builtin_plugins.processes import seconds_since_change

#: Of an attempt's number, in digits: a file of another origin may have any name, and a database column is limited.
_LONGEST: Final = 9
#: A lease of another machine or container that has not changed for this long is over.
EXPIRE_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.5
#: An attempt is claimed a moment before its lease is written; for so long its claim stands for the lease.
_OPENING_MS: Final = 10_000
#: Of the end of an event log, to find its newest attempt in.
_TAIL_BYTES: Final = 1 << 20

#: By run directory: the newest lease that this process has seen of a holder elsewhere, when it saw it first
#: (monotonic), and whether it replaced another.
_seen: dict[Path, tuple[Lease | None, float, bool]] = {}


def claimed_attempts(folder: Path) -> list[int]:
    """Return the attempts that were claimed, oldest first."""
    numbers = (path.stem for path in folder.glob("*.json") if path.stem.isdecimal())
    return sorted(int(number) for number in numbers if len(number) <= _LONGEST)


def newest_claim(folder: Path) -> int:
    """Return the highest attempt claimed; 0 if there is none."""
    return max(claimed_attempts(folder), default=0)


def newest_attempt(folder: Path) -> int:
    """Return the highest attempt that was begun; 0 if there is none.

    An attempt whose claim was removed has its log of rank 0.
    """
    newest, directory = newest_claim(folder), RunDirectory(folder.parent)
    while directory.rank_events(newest + 1, 0).exists():
        newest += 1
    return newest


def next_attempt(directory: RunDirectory) -> int:
    """Return the number of the next attempt: above all that were claimed, or that the event log names."""
    from hostcore.events.reader import newest_lines  # which cattrs comes with: a list of runs needs neither

    logged = 0
    for line in reversed(newest_lines(directory.events, most=_TAIL_BYTES)):
        with suppress(ValueError, KeyError, TypeError):  # the last line may be torn
            logged = int(orjson.loads(line)["attempt"])
            break
    return max(newest_attempt(directory.attempts), logged) + 1


def claim_attempt(folder: Path, attempt: int, *, process: ProcessIdentity, started_ms: int) -> None:
    """Claim an attempt.

    :raises FileExistsError: When another process was faster.
    """
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder / f"{attempt}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        claim = {"attempt": attempt, "process": attrs.asdict(process), "started_ms": started_ms}
        os.write(descriptor, orjson.dumps(claim, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(folder)


@attrs.frozen(kw_only=True)
class AttemptClaim:
    """``attempts/<n>.json``."""

    attempt: int
    #: The supervisor.
    process: ProcessIdentity
    #: Milliseconds since 1970.
    started_ms: int


def read_claim(folder: Path, attempt: int) -> AttemptClaim | None:
    """Return the claim of an attempt; None if there is none.

    None as well for an empty or damaged file: its name alone is the claim, and it may be read while it is written.
    """
    path = folder / f"{attempt}.json"
    try:
        return from_document(AttemptClaim, read_document(path), file=path)
    except (FileNotFoundError, CorruptDocument, UnreadableDocument):
        return None


def proven_held(directory: RunDirectory, *, clock: Callable[[], float] = time.monotonic) -> bool | None:
    """Return whether a supervisor that lives holds a run; None while that is not proven.

    A process number has a meaning where the process was started, and a time for the clock that it is from. A lease of
    elsewhere is live if it changes while this process watches, and over if it has not for :data:`EXPIRE_SECONDS`.
    """
    path = directory.lease
    lease = Lease.read(path)
    newest = newest_attempt(directory.attempts)
    if lease is None and (newest == 0 or not path.exists()):
        return False
    holder = lease or read_claim(directory.attempts, newest)
    if holder is not None and holder.process.is_here:
        return holder.process.runs
    now = clock()
    if directory.path not in _seen or _seen[directory.path][0] != lease:
        _seen[directory.path] = lease, now, directory.path in _seen
    _, since, changed = _seen[directory.path]
    return False if now - since >= EXPIRE_SECONDS else changed or None


def is_held(directory: RunDirectory) -> bool:
    """Return whether a supervisor that lives holds a run, as far as that can be known at once.

    What :func:`proven_held` leaves open is decided by the age of the lease's file, by the clock of its file server.
    """
    proven = proven_held(directory)
    try:
        return proven if proven is not None else seconds_since_change(directory.lease) < EXPIRE_SECONDS
    except FileNotFoundError:  # released in this moment
        return False


def await_proof(directory: RunDirectory, *, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Return whether a supervisor that lives holds a run; watch it for as long as that takes."""
    while (proven := proven_held(directory)) is None:
        sleep(_POLL_SECONDS)
    return proven


def is_opening(directory: RunDirectory, attempt: int, claim: AttemptClaim | None) -> bool:
    """Return whether an attempt without a lease may be about to get it.

    :param claim: None if there is none, or if it has not been written yet: its file comes first.
    """
    if claim is not None and claim.process.is_here:
        return time.time() * 1000 - claim.started_ms < _OPENING_MS and claim.process.runs
    try:
        return seconds_since_change(directory.attempts / f"{attempt}.json") * 1000 < _OPENING_MS
    except FileNotFoundError:
        return False


def is_orphaned(directory: RunDirectory) -> bool:
    """Return whether a run directory holds only the files that are made before the record, by a process that is gone.

    Its first supervisor was killed after it made the directory, and before it wrote the record.
    """
    if not directory.path.is_dir() or directory.record.exists():
        return False
    own = {directory.lease, directory.attempts / "1.json"}
    folders = {directory.record.parent, directory.attempts, directory.logs, directory.checkpoints, directory.samples}
    for path in directory.path.rglob("*"):
        is_torn = path.name.startswith(".") and path.name.endswith(".tmp")
        if path not in folders and path not in own and not is_torn:
            return False  # a folder of other content
    claim = read_claim(directory.attempts, 1)
    if claim is not None and claim.process.is_here:
        return not claim.process.runs
    return not await_proof(directory) and (claim is None or not is_opening(directory, 1, claim))


def remove_orphaned(directory: RunDirectory) -> None:
    """Remove a run directory that :func:`is_orphaned`, so that the run can begin."""
    if is_orphaned(directory):
        directory.remove()
