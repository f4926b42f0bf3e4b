"""Attempts: each start of a run claims the next number, so that two starts never share one."""

import os
from pathlib import Path
from typing import Final

import attrs
import orjson

from hostcore.events.folder_sync import sync_folder
from hostcore.runs.documents import CorruptDocument, UnreadableDocument, construct, read_document
from hostcore.runs.lease import ProcessIdentity

#: Of an attempt's number, in digits: a file of another origin may have any name, and a database column is limited.
_LONGEST: Final = 9


def claimed_attempts(folder: Path) -> list[int]:
    """The attempts that were claimed, oldest first."""
    numbers = (path.stem for path in folder.glob("*.json") if path.stem.isdecimal())
    return sorted(int(number) for number in numbers if len(number) <= _LONGEST)


def newest_attempt(folder: Path) -> int:
    """The highest attempt claimed; 0 if there is none."""
    return max(claimed_attempts(folder), default=0)


def claim_attempt(folder: Path, attempt: int, *, process: ProcessIdentity, started_ms: int) -> None:
    """Claim an attempt.

    :raises FileExistsError: When another process was faster.
    """
    descriptor = os.open(folder / f"{attempt}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        claim = {"attempt": attempt, "process": attrs.asdict(process), "started_ms": started_ms}
        os.write(descriptor, orjson.dumps(claim, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(folder)


@attrs.frozen(kw_only=True)
class Claim:
    """``attempts/<n>.json``."""

    attempt: int
    #: The supervisor.
    process: ProcessIdentity
    #: Milliseconds since 1970.
    started_ms: int


def read_claim(folder: Path, attempt: int) -> Claim | None:
    """The claim of an attempt; None if there is none.

    None as well for a file that says nothing: its name alone is the claim, and it may be read while it is written.
    """
    path = folder / f"{attempt}.json"
    try:
        found = read_document(path)
        process = construct(ProcessIdentity, found.get("process") or {}, file=path)
        return construct(Claim, {**found, "process": process}, file=path)
    except (FileNotFoundError, CorruptDocument, UnreadableDocument):
        return None
