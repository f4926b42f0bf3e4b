"""Attempts: each start of a run claims the next number, so that two starts never share one."""

import os
from pathlib import Path
from typing import Final

import attrs
import orjson

from hostcore.events.writer import sync_folder
from hostcore.runs.lease import ProcessIdentity

#: Of an attempt's number, in digits. A database has room for it, whatever somebody has made there.
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
