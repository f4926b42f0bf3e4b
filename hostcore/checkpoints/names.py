"""The names in a run's ``checkpoints`` folder.

``step-000200`` is a checkpoint and ``step-000200.json`` its commit record. Hidden names belong to a commit or a prune
under way, and name its attempt: ``.step-000200.attempt-2.tmp``, ``.step-000200.json.attempt-2.tmp``. An empty file
``.step-000200.json.attempt-2.retired`` marks a checkpoint that is kept only until it has been uploaded.
"""

import re
from pathlib import Path
from typing import Final, Literal

import attrs

#: ``tmp``: being written. ``old``: makes room for a new version of its step. ``pruned``: being removed.
Purpose = Literal["tmp", "old", "pruned"]

_FOLDER: Final = re.compile(r"step-(\d{6,})", re.ASCII)
_RETIRED: Final = re.compile(r"\.step-(\d{6,})\.json\.attempt-(\d+)\.retired", re.ASCII)
_HIDDEN: Final = re.compile(r"\.step-(\d{6,})(?:\.json)?\.attempt-(\d+)\.(?:tmp|old|pruned)", re.ASCII)


def folder_name(step: int) -> str:
    """The folder of a step: at least six digits, so that names sort up to a million steps."""
    return f"step-{step:06d}"


def record_name(step: int) -> str:
    """The commit record of a step."""
    return f"{folder_name(step)}.json"


def step_of_folder(name: str) -> int | None:
    """The step of a checkpoint's folder; None for any other name."""
    match = _FOLDER.fullmatch(name)
    # "step-0000200" reads as step 200 too, but is not what step 200 is called.
    return int(match[1]) if match and folder_name(int(match[1])) == name else None


def step_of_record(name: str) -> int | None:
    """The step of a commit record; None for any other name."""
    return step_of_folder(name.removesuffix(".json")) if name.endswith(".json") else None


@attrs.frozen
class Claim:
    """One attempt's work on the checkpoint of one step, and the paths that it may touch."""

    directory: Path
    step: int
    attempt: int

    @property
    def folder(self) -> Path:
        """Folder of the checkpoint once it is committed."""
        return self.directory / folder_name(self.step)

    @property
    def record(self) -> Path:
        """Its commit record once it is committed."""
        return self.directory / record_name(self.step)

    def hidden_folder(self, purpose: Purpose) -> Path:
        """The checkpoint, before or after it is one."""
        return self.directory / f".{folder_name(self.step)}.attempt-{self.attempt}.{purpose}"

    def hidden_record(self, purpose: Purpose) -> Path:
        """Its commit record, before or after it is one."""
        return self.directory / f".{record_name(self.step)}.attempt-{self.attempt}.{purpose}"

    @property
    def retired(self) -> Path:
        """Mark of a checkpoint that is kept only until it has been uploaded."""
        return self.directory / f".{record_name(self.step)}.attempt-{self.attempt}.retired"

    @property
    def hidden(self) -> list[Path]:
        """Everything that it may have left under a hidden name."""
        purposes: tuple[Purpose, ...] = ("tmp", "old", "pruned")
        return [path for one in purposes for path in (self.hidden_folder(one), self.hidden_record(one))]


def claims(directory: Path) -> list[Claim]:
    """The claims that left something hidden in a folder, newest attempt first."""
    matches = (_HIDDEN.fullmatch(entry.name) for entry in directory.iterdir())
    found = {(int(match[2]), int(match[1])) for match in matches if match}
    return [Claim(directory, step, attempt) for attempt, step in sorted(found, reverse=True)]


def retired_claim(name: str) -> tuple[int, int] | None:
    """Return the step and the attempt of a mark of a retired checkpoint; None for any other name."""
    match = _RETIRED.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
