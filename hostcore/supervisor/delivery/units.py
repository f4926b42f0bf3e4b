"""Units: files that are uploaded together, since each is of use only when all have arrived; and the places of all."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Final, Literal

import attrs

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed
from hostcore.checkpoints.names import Claim, record_name, step_of_folder
from hostcore.checkpoints.prune import retired
from hostcore.checkpoints.record import CommitRecord
from hostcore.runs.directory import RunDirectory
from hostcore_hookspecs import events
from hostcore_hookspecs.uploader import Artifact

CHECKPOINTS: Final = "checkpoints"
SAMPLES: Final = "samples"
_VERSION_LENGTH: Final = 12


class Priority(IntEnum):
    """Priority of a unit over the order in which units come up."""

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
    #: The place of its content; absolute.
    path: Path
    #: Its place below the run directory, with ``/``.
    relative_path: str
    #: In bytes.
    size: int
    #: Empty until it is computed.
    sha256: str = ""


@attrs.frozen(kw_only=True, eq=False)
class Unit:
    """One checkpoint, one generated sample, or one document."""

    kind: Literal["checkpoint", "sample", "document"]
    #: Below the run directory: ``checkpoints/step-000200``, ``samples/step-000200/0``, ``config/run.json``.
    name: str
    #: Distinguishes it from another of the same name: a step may be written again, a log grows.
    version: str
    files: tuple[UnitFile, ...]
    #: Uploaded after all ``files`` have arrived: the commit record of a checkpoint.
    seal: UnitFile | None = None
    step: int | None = None
    final: bool = False
    priority: Priority = Priority.USUAL
    #: True if its content may grow. A commit record that comes up later waits for it.
    is_log: bool = False
    #: Folder of its copy in the spool; None if its files lie in their own places.
    spooled: Path | None = None
    #: The time of its save, in nanoseconds since 1970: the order of checkpoints.
    saved_ns: int = 0
    #: The time since which it waits, in seconds since 1970.
    waits_since: float = attrs.field(factory=time.time)

    @property
    def key(self) -> tuple[str, str]:
        """Distinguishes it from any other unit."""
        return self.name, self.version

    @property
    def all_files(self) -> tuple[UnitFile, ...]:
        """All files; the last one to be uploaded is the last."""
        return self.files if self.seal is None else (*self.files, self.seal)

    @property
    def size(self) -> int:
        """Of all files, in bytes."""
        return sum(file.size for file in self.all_files)

    def artifact(self, file: UnitFile) -> Artifact:
        """Return a file as an uploader gets it."""
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
        """Return the unit with the size and SHA-256 of every file, reading those that have none.

        :param again: Read the others, too: they have moved to a place where they do not change any more.
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


class Vanished(Exception):
    """It was removed before it could be uploaded."""


@attrs.frozen(kw_only=True)
class ArtifactFolder:
    """The folder of checkpoints or samples, and its name below the run directory."""

    folder: Path
    #: ``checkpoints`` or ``samples``, wherever the folder is.
    name: str


def committed_unit(place: ArtifactFolder, step: int) -> Unit:
    """Return the checkpoint of a step in its own place.

    :raises Vanished: When there is none.
    """
    record_path = place.folder / record_name(step)
    try:
        content, saved_ns = record_path.read_bytes(), record_path.stat().st_mtime_ns
        record = CommitRecord.from_json(content, file=record_path)
    except (OSError, CheckpointError) as error:
        raise Vanished(str(error)) from error
    folder = place.folder / record.folder_name
    files = tuple(
        UnitFile(
            kind="checkpoint",
            path=folder / file.path,
            relative_path=f"{place.name}/{record.folder_name}/{file.path}",
            size=file.size,
            sha256=file.sha256,
        )
        for file in record.files
    )
    digest = hashlib.sha256(content).hexdigest()
    seal = UnitFile(
        kind="commit",
        path=record_path,
        relative_path=f"{place.name}/{record_path.name}",
        size=len(content),
        sha256=digest,
    )
    return Unit(
        kind="checkpoint",
        name=f"{place.name}/{record.folder_name}",
        version=digest[:_VERSION_LENGTH],
        files=files,
        seal=seal,
        step=record.step,
        final=record.final,
        saved_ns=saved_ns,
    )


def sample_unit(place: ArtifactFolder, relative: str) -> Unit:
    """Return a generated sample in its own place. Its files have no SHA-256 yet.

    :param relative: Below the folder of samples: ``step-000200/0``.
    :raises Vanished: When there is none.
    """
    folder = place.folder / relative
    try:
        status = folder.stat()
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        files = tuple(
            UnitFile(
                kind="sample",
                path=path,
                relative_path=f"{place.name}/{relative}/{path.relative_to(folder).as_posix()}",
                size=path.stat().st_size,
            )
            for path in paths
        )
    except OSError as error:
        raise Vanished(str(error)) from error
    return Unit(
        kind="sample",
        name=f"{place.name}/{relative}",
        version=f"{status.st_ino:x}-{status.st_mtime_ns:x}",
        files=files,
        step=step_of_folder(Path(relative).parts[0]),
        saved_ns=status.st_mtime_ns,
    )


def document_unit(
    path: Path, relative_path: str, *, kind: str, priority: Priority = Priority.USUAL, is_log: bool = False
) -> Unit:
    """Return a document in its own place, hashed.

    :raises OSError: When it cannot be read.
    """
    status = path.stat()
    file = UnitFile(kind=kind, path=path, relative_path=relative_path, size=status.st_size)
    unit = Unit(
        kind="document",
        name=relative_path,
        version="",
        files=(file,),
        priority=priority,
        is_log=is_log,
        saved_ns=status.st_mtime_ns,
    ).hashed()
    return attrs.evolve(unit, version=unit.files[0].sha256[:_VERSION_LENGTH])


def is_unchanged(unit: Unit) -> bool:
    """Return True if the files of a unit in its own place are still there, and its commit record is the same."""
    if unit.seal is None:
        return all(file.path.is_file() for file in unit.files)
    try:
        return hashlib.sha256(unit.seal.path.read_bytes()).hexdigest() == unit.seal.sha256
    except OSError:
        return False


@attrs.frozen(kw_only=True)
class Inventory:
    """The places of everything that a run writes.

    Its lease, its requests, its cursors and what belongs to the uploads themselves are not uploaded.
    """

    directory: RunDirectory
    checkpoints: ArtifactFolder
    samples: ArtifactFolder
    #: Errors of what is there and could not be read, by name.
    unreadable: dict[str, OSError] = attrs.field(factory=dict)

    @classmethod
    def of(
        cls, directory: RunDirectory, *, checkpoints: Path | None = None, samples: Path | None = None
    ) -> "Inventory":
        """Return that of a run directory.

        :param checkpoints: Their folder, if it is not in the run directory.
        :param samples: Theirs.
        """
        return cls(
            directory=directory,
            checkpoints=ArtifactFolder(folder=checkpoints or directory.checkpoints, name=CHECKPOINTS),
            samples=ArtifactFolder(folder=samples or directory.samples, name=SAMPLES),
        )

    def committed(self) -> Iterator[Unit]:
        """Yield all committed checkpoints, oldest first. Those that are removed meanwhile are passed over."""
        found = []
        for record in committed(self.checkpoints.folder):
            try:
                found.append(committed_unit(self.checkpoints, record.step))
            except Vanished:
                continue
        yield from sorted(found, key=lambda unit: unit.saved_ns)

    def retired(self, known: Mapping[Claim, Unit]) -> dict[Claim, Unit]:
        """Return the checkpoints that are kept only until they have been uploaded, oldest first.

        :param known: The result of the call before: none of them is read again.
        """
        found = {}
        for claim in retired(self.checkpoints.folder):
            with suppress(Vanished, FileNotFoundError):  # another process removes it, or a run resumes from it
                found[claim] = known.get(claim) or self._retired(claim)
        return found

    def _retired(self, claim: Claim) -> Unit:
        unit = committed_unit(self.checkpoints, claim.step)
        return attrs.evolve(unit, waits_since=claim.retired.stat().st_mtime)

    def generated(self) -> Iterator[Unit]:
        """Yield all generated samples, by step, hashed. Those that are removed meanwhile are passed over."""
        steps = sorted(self.samples.folder.iterdir()) if self.samples.folder.is_dir() else []
        for step in steps:
            if step_of_folder(step.name) is None or not step.is_dir():
                continue
            for sample in sorted(step.iterdir()):
                if sample.is_dir() and not sample.name.startswith("."):
                    try:
                        yield sample_unit(self.samples, f"{step.name}/{sample.name}").hashed()
                    except (Vanished, OSError):
                        continue

    def saved(self, payload: events.CheckpointSaved | events.SampleSaved) -> Unit:
        """Return the unit of an event.

        :raises Vanished: When it is not there any more.
        """
        *_, name = parts = payload.path.split("/")
        if isinstance(payload, events.SampleSaved):
            return sample_unit(self.samples, "/".join(parts[-2:]))
        if (step := step_of_folder(name)) is None:
            raise Vanished(f"{payload.path} is no name of a checkpoint")
        return committed_unit(self.checkpoints, step)

    def beginning(self, attempt: int) -> Iterator[Unit]:
        """Yield the documents of the beginning of an attempt, with its job."""
        yield from self._documents(self.directory.attempts, f"{attempt}.json", kind="config", priority=Priority.FIRST)
        # The record last: who finds it in a mirror has found the run.
        for path in (self.directory.lock, self.directory.record):
            yield from self._documents(path.parent, path.name, kind="config", priority=Priority.FIRST)

    def growing_logs(self) -> Iterator[Unit]:
        """Yield the event log, and the output of the ranks."""
        yield from self.event_log()
        yield from self._documents(self.directory.logs, "rank-*.log", kind="log")

    def event_log(self) -> Iterator[Unit]:
        """Yield the event log."""
        yield from self._documents(self.directory.logs, self.directory.events.name, kind="log")

    def event_log_bytes(self) -> int:
        """Return the size of the event log; 0 before it is there."""
        try:
            return self.directory.events.stat().st_size
        except FileNotFoundError:
            return 0

    def log_bytes(self) -> int:
        """Return the size of all logs together."""
        return sum(path.stat().st_size for path in self._paths(self.directory.logs, "*"))

    def plots(self) -> Iterator[Unit]:
        """Yield the pictures."""
        yield from self._documents(self.directory.loss_plot.parent, "*", kind="plot")

    def ending(self) -> Iterator[Unit]:
        """Yield all documents of a run that has ended, the result last."""
        yield from self._documents(self.directory.attempts, "*.json", kind="config")
        for pattern in (self.directory.lock.name, "*.json"):
            yield from self._documents(self.directory.record.parent, pattern, kind="config")
        yield from self.plots()
        yield from self._documents(self.directory.logs, "*", kind="log")
        yield from self._documents(
            self.directory.path, self.directory.result.name, kind="result", priority=Priority.LAST
        )

    def _documents(
        self, folder: Path, pattern: str, *, kind: str, priority: Priority = Priority.USUAL
    ) -> Iterator[Unit]:
        for path in self._paths(folder, pattern):
            relative = path.relative_to(self.directory.path).as_posix()
            try:
                yield document_unit(path, relative, kind=kind, priority=priority, is_log=kind == "log")
            except FileNotFoundError:
                continue
            except OSError as error:
                self.unreadable[relative] = error

    def _paths(self, folder: Path, pattern: str) -> list[Path]:
        return [path for path in sorted(folder.glob(pattern)) if not path.name.startswith(".") and path.is_file()]
