"""Units: what is uploaded as one, and is of use at its destination only when it is there as a whole."""

import hashlib
from enum import IntEnum
from pathlib import Path
from typing import Literal

import attrs

from hostcore_hookspecs.uploader import Artifact


class Turn(IntEnum):
    """When a unit is uploaded, beside the order in which units come up."""

    #: Before anything else: that the attempt has begun.
    FIRST = 0
    USUAL = 1
    #: After everything else: how the run has ended.
    LAST = 2


@attrs.frozen(kw_only=True)
class UnitFile:
    """One file of a unit."""

    #: As the contract of uploaders has it: ``checkpoint``, ``commit``, ``sample``, …
    kind: str
    #: Where its content lies; absolute.
    path: Path
    #: Where it belongs below the run directory, with ``/``.
    relative_path: str
    #: In bytes.
    size: int
    #: Empty while nobody has computed it.
    sha256: str = ""


@attrs.frozen(kw_only=True, eq=False)
class Unit:
    """One checkpoint, one generated sample, or one document."""

    kind: Literal["checkpoint", "sample", "document"]
    #: Below the run directory: ``checkpoints/step-000200``, ``samples/step-000200/0``, ``config/run.json``.
    name: str
    #: Tells it from another of the same name: a step may be written again, a log grows.
    version: str
    files: tuple[UnitFile, ...]
    #: Uploaded after all ``files`` have arrived: the commit record of a checkpoint.
    seal: UnitFile | None = None
    step: int | None = None
    final: bool = False
    turn: Turn = Turn.USUAL
    #: Whether its content may grow on. A commit record that comes up later waits for it.
    is_log: bool = False
    #: Its folder in the spool; None if its files lie in their own places, and may go away.
    spooled: Path | None = None
    #: When it was saved, in nanoseconds since 1970: the order of checkpoints.
    saved_ns: int = 0
    #: When it began to wait, in seconds since 1970.
    waits_since: float = 0.0

    @property
    def all_files(self) -> tuple[UnitFile, ...]:
        """All files; the last one to be uploaded is the last."""
        return self.files if self.seal is None else (*self.files, self.seal)

    @property
    def size(self) -> int:
        """Of all files, in bytes."""
        return sum(file.size for file in self.all_files)

    def artifact(self, file: UnitFile) -> Artifact:
        """A file as an uploader gets it."""
        return Artifact(
            kind=file.kind,
            path=str(file.path),
            relative_path=file.relative_path,
            size=file.size,
            sha256=file.sha256,
            step=self.step,
            final=self.final,
        )

    def hashed(self, *, again: bool = False) -> "Unit":
        """The same with the size and SHA-256 of every file, reading those that have none.

        :param again: Whether to read the others, too: they have moved to where nobody changes them any more.
        :raises OSError: When one cannot be read.
        """
        if not again and all(file.sha256 for file in self.files):
            return self
        return attrs.evolve(
            self, files=tuple(_hashed(file) if again or not file.sha256 else file for file in self.files)
        )


def _hashed(file: UnitFile) -> UnitFile:
    digest, size = hashlib.sha256(), 0
    with file.path.open("rb") as content:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return attrs.evolve(file, size=size, sha256=digest.hexdigest())
