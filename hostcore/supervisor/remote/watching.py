"""Follow a remote run by copying its mirror periodically; local files are only appended to.

What comes is only ever added: attempts, events of higher numbers than are here, the result of a later attempt. A
reader of the event log here reads on as if it were written here. The result comes after the last event, unless no more
events can come: of a log that is larger than what is copied.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from hostcore.checkpoints.durable import write_file
from hostcore.events.reader import seq_of
from hostcore.job.spec import JobSpec
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import CorruptDocument, read_document, write_document
from hostcore.runs.launch import Launch, has_ended
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.secrets.scrub import scrub
from hostcore.supervisor.remote.mirror import Mirror, mirror_of, record_of
from hostcore_builtin_plugins.control_characters import visible
from hostcore_builtin_plugins.stores.location import Location, RemoteFile
from hostcore_hookspecs.errors import HostcoreError

LOG: Final = logging.getLogger("hostcore.mirror")

#: Read at once, and added in one call at the most; in bytes.
_PIECE: Final = 8 << 20
_MOST: Final = 64 << 20
#: Of a line, in bytes: so long only where an older version wrote what a plugin had said as a whole.
_LONGEST: Final = 128 << 20
#: Of a copy: the run's owner must not fill this machine's disk.
_LARGEST: Final = 4 << 30
_BLOCK: Final = 1 << 16
#: A mirror is not asked more often.
_LOOK_SECONDS: Final = 10.0
#: Of a document in a mirror.
_MOST_BYTES: Final = 64 << 20
#: The newest attempts that are brought.
_MOST_CLAIMS: Final = 1000
#: How long a store may take to answer: the caller has other runs to look at.
_ANSWER_SECONDS: Final = 15.0


def add_events(log: Location, size: int, copy: Path) -> bool:
    """Add to a copy what the log has beyond it. Called by one process at a time.

    An original that is not what was copied before (an attempt elsewhere went on from an earlier copy) adds its events
    of higher numbers alone: no number is delivered twice.

    :param log: The original.
    :param size: Of the original, in bytes.
    :param copy: Need not exist.
    :return: Whether the copy has it all now; more is left for the next call otherwise.
    :raises StoreError: When it cannot be read.
    """
    copy.parent.mkdir(parents=True, exist_ok=True)
    with copy.open("a+b", buffering=0) as target:
        end, last = _end(target.fileno())
        if end >= _LARGEST:
            LOG.warning(
                "%s has more than %s bytes, which is all that is copied here", visible(log.uri), f"{_LARGEST:,}"
            )
            return False
        newest = seq_of(last) or 0
        target.truncate(end)
        follows = last == (log.read(end - len(last), end) if last and end <= size else b"")
        at, added, length = end if follows else 0, 0, _PIECE
        while at < size:
            piece = log.read(at, min(at + length, size)) or b""
            whole = piece[: piece.rfind(b"\n") + 1]
            if not whole:
                if len(piece) < length or length >= _LONGEST:
                    return len(piece) < length  # the last line is torn; or it is none of ours
                length *= 2
                continue
            length = _PIECE
            new = whole if follows else b"".join(_newer(whole, newest))
            target.write(new)
            at += len(whole)
            added += len(new)
            if added >= _MOST:
                return at >= size
    return True


def _newer(lines: bytes, newest: int) -> list[bytes]:
    return [line for line in lines.splitlines(keepends=True) if (seq_of(line) or 0) > newest]


def _end(descriptor: int) -> tuple[int, bytes]:
    """Return the end of the last whole line of a file, and that line; 0 and nothing if there is none."""
    size = os.fstat(descriptor).st_size
    begin, tail = size, b""
    while begin > 0:
        begin = max(0, begin - _BLOCK)
        tail = os.pread(descriptor, size - begin, begin)
        end = tail.rfind(b"\n") + 1
        if end and ((previous := tail.rfind(b"\n", 0, end - 1)) >= 0 or begin == 0):
            return begin + end, tail[previous + 1 : end]
    return 0, b""


def refresh_far(directory: RunDirectory) -> None:
    """Refresh a run if it goes on where its directory is not seen.

    :raises HostcoreError: When its record cannot be read.
    """
    launch = Launch.read(directory.launch) if directory.launch.exists() else None
    if launch is None or launch.sees_run_dir:
        return
    record, result = RunRecord.read(directory.record), RunResult.read(directory.result)
    is_new = has_ended(directory, launch) and (result is None or result.attempt < launch.attempt)
    if is_new:
        refresh_ended(record.spec(), directory)
    else:
        refresh(record.spec(), directory)


def refresh_ended(spec: JobSpec, directory: RunDirectory) -> bool:
    """Refresh a run that has ended, until everything that its mirror has is here, or no more of its events arrive.

    :return: Whether everything is here.
    """
    while True:
        before = _size(directory.events)
        if refresh(spec, directory, at_once=True):
            return True
        if _size(directory.events) == before:
            return False


def refresh(spec: JobSpec, directory: RunDirectory, *, at_once: bool = False) -> bool:
    """Bring a run's plugins, attempts, events and end from its mirror into the directory here.

    Nothing is done for a job without a mirror, right after the last time, or while it is being done elsewhere. A store
    that does not answer, and a directory that cannot be written, change nothing but the log of this process: the
    launcher knows how the run goes.

    :param at_once: However short the last time ago is: it has ended.
    :return: Whether everything that the mirror has is here. If not, it is worth another look.
    """
    if spec.checkpoint_base_uri is None or not directory.path.is_dir():
        return True
    try:
        with _noted(directory) as notes:
            if notes is None or not (at_once or notes.is_due()):
                return False
            try:
                mirror = mirror_of(spec)
                assert mirror is not None  # there is a base URI
                return _bring(Mirror(attrs.evolve(mirror.place, answer_seconds=_ANSWER_SECONDS)), directory, notes)
            finally:
                notes.write()
    except (HostcoreError, OSError) as error:
        level = logging.WARNING if at_once else logging.INFO  # else it is looked at again before it ends
        LOG.log(level, "the mirror of %s cannot be brought here: %s", directory.run_id, visible(scrub(str(error))))
        return False


@attrs.define(kw_only=True)
class _Notes:
    """``.mirror.json``: which versions of the mirror's files are here; its time is that of the last look."""

    path: Path
    versions: dict[str, str]
    _changed: bool = attrs.field(default=False, init=False)

    def is_due(self) -> bool:
        try:
            return abs(time.time() - self.path.stat().st_mtime) >= _LOOK_SECONDS
        except FileNotFoundError:
            return True

    def has(self, name: str, file: RemoteFile) -> bool:
        return bool(file.version) and self.versions.get(name) == f"{file.size} {file.version}"

    def note(self, name: str, file: RemoteFile) -> None:
        self.versions[name] = f"{file.size} {file.version}"
        self._changed = True

    def write(self) -> None:
        if self._changed or not self.path.exists():
            write_document(self.path, {"versions": self.versions})
        else:
            os.utime(self.path)


@contextmanager
def _noted(directory: RunDirectory) -> Iterator[_Notes | None]:
    """The notes of a run, held against other processes; None while one of them holds them."""
    path = directory.path / ".mirror.json"
    with path.with_suffix(".lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        try:
            versions = read_document(path).get("versions")
        except (FileNotFoundError, CorruptDocument):
            versions = None
        yield _Notes(path=path, versions=versions if isinstance(versions, dict) else {})


def _bring(mirror: Mirror, directory: RunDirectory, notes: _Notes) -> bool:
    """Return True if everything is here."""

    def take(name: str, file: RemoteFile | None, act: Callable[[Location, RemoteFile, RunDirectory], bool]) -> bool:
        if file is None or notes.has(name, file):
            return True
        if not act(mirror.place.below(name), file, directory):
            return False
        notes.note(name, file)
        return True

    # Looked for first, taken last: the log of a mirror is whole when its result is there, and so is the copy then.
    result = mirror.place.below("result.json").file()
    complete = take("config/run.json", mirror.place.below("config/run.json").file(), _take_record)
    _take_claims(mirror, directory)
    before = _size(directory.events)
    if not take("logs/events.jsonl", mirror.place.below("logs/events.jsonl").file(), _take_events):
        complete = False
        if _size(directory.events) > before:
            return False
    return take("result.json", result, _take_result) and complete


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _take_record(place: Location, file: RemoteFile, directory: RunDirectory) -> bool:
    """Take the plugins and the environment that it runs with. The job stays as it was submitted, with its launcher."""
    content = _small(place, file)
    if content is None:
        return False
    own, ran = RunRecord.read(directory.record), record_of(content, place.uri)
    attrs.evolve(
        own,
        plugins=ran.plugins,
        used=ran.used,
        environment=ran.environment,
        parent=ran.parent or own.parent,
        total_steps=ran.total_steps or own.total_steps,
    ).write(directory.record)
    return True


def _take_claims(mirror: Mirror, directory: RunDirectory) -> None:
    for number in mirror.attempts()[-_MOST_CLAIMS:]:
        target, place = directory.attempts / f"{number}.json", mirror.place.below(f"attempts/{number}.json")
        if not target.exists() and (file := place.file()) is not None and (claim := _small(place, file)) is not None:
            write_file(target, [claim])


def _small(place: Location, file: RemoteFile) -> bytes | None:
    """The content of a document; None if there is none any more.

    :raises CorruptDocument: When it is longer than any: it was written elsewhere, and takes memory here.
    """
    if (file.size or 0) > _MOST_BYTES:
        raise CorruptDocument(f"longer than {_MOST_BYTES:,} bytes", file=place.uri)
    return place.read()


def _take_events(place: Location, file: RemoteFile, directory: RunDirectory) -> bool:
    return add_events(place, file.size or 0, directory.events)


def _take_result(place: Location, file: RemoteFile, directory: RunDirectory) -> bool:
    content = _small(place, file)
    if content is None or place.file() != file:  # that of a later attempt, whose events were not asked for
        return False
    arrived = directory.result.with_name(".result.arrived.json")
    arrived.write_bytes(content)
    try:
        own, theirs = RunResult.read(directory.result), RunResult.read(arrived)
    finally:
        arrived.unlink()
    if theirs is not None and (own is None or theirs.attempt >= own.attempt):
        write_file(directory.result, [content])
    return True
