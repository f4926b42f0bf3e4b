"""The status of a run that executes where this directory is not visible: only its launcher knows it.

The last status of a launch that has ended is kept in ``config/launch.ended.json``, since engines forget ended jobs.
"""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from hostcore.events.reader import newest_lines
from hostcore.plugins.installed import discover
from hostcore.plugins.launching import launcher_of
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import CorruptDocument, UnreadableDocument, construct, read_document, write_document
from hostcore.runs.launch import Launch, launch_seconds
from hostcore.runs.record import RunRecord
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.launcher import LaunchStatus

_ENDS: Final = ("succeeded", "failed", "cancelled", "preempted")
#: A follower looks several times a second; the engine is not asked as often.
_FRESH_SECONDS: Final = 3.0
#: How long a launch may take from when it was written down.
_LAUNCHING_SECONDS: Final = 60.0
#: Of the end of an event log, to find the newest step in.
_TAIL_BYTES: Final = 1 << 16

#: By launch: when its launcher was asked last, and what it said.
_asked: dict[tuple[Path, str], tuple[float, LaunchStatus]] = {}


@attrs.frozen(kw_only=True)
class _Ended:
    """``config/launch.ended.json``."""

    launch_id: str
    status: str
    message: str = ""
    exit_code: int | None = None


def launcher_status(directory: RunDirectory, launch: Launch, *, begun: bool) -> LaunchStatus:
    """What the launcher says of a launch.

    :param begun: Whether an attempt of this launch is known: one whose launcher cannot tell now goes on, then.
    """
    ended = _kept(directory, launch)
    if ended is not None:
        return ended
    if launch.handle is None:
        launching = launch_seconds(directory) < _LAUNCHING_SECONDS
        return LaunchStatus(status="submitted" if launching else "lost", message="it was never launched")
    key, now = (directory.path, launch.launch_id), time.monotonic()
    asked_at, status = _asked.get(key, (float("-inf"), None))
    if status is None or now - asked_at > _FRESH_SECONDS:
        status = _ask(directory, launch, begun=begun)
        _asked[key] = (time.monotonic(), status)
    if status.status in _ENDS:
        _keep(directory, launch, status)
    return status


def has_ended(directory: RunDirectory, launch: Launch) -> bool:
    """Whether the launcher has said that a launch has ended."""
    return _kept(directory, launch) is not None


def _ask(directory: RunDirectory, launch: Launch, *, begun: bool) -> LaunchStatus:
    assert launch.handle is not None
    record = RunRecord.read(directory.record)
    try:
        return launcher_of(record.spec(), discover()).poll(launch.handle)
    except HostcoreError as error:
        return LaunchStatus(status="running" if begun else "submitted", message=f"its launcher: {error.message}")


def _path(directory: RunDirectory) -> Path:
    return directory.launch.with_name("launch.ended.json")


def _kept(directory: RunDirectory, launch: Launch) -> LaunchStatus | None:
    path = _path(directory)
    try:
        ended = construct(_Ended, read_document(path), file=path)
    except (FileNotFoundError, CorruptDocument, UnreadableDocument):
        return None
    if ended.launch_id != launch.launch_id:
        return None  # of an earlier launch
    return LaunchStatus(status=ended.status, message=ended.message, exit_code=ended.exit_code)


def _keep(directory: RunDirectory, launch: Launch, status: LaunchStatus) -> None:
    ended = _Ended(launch_id=launch.launch_id, status=status.status, message=status.message, exit_code=status.exit_code)
    with suppress(OSError):  # the reader may lack the right to write; the run's owner will keep it
        write_document(_path(directory), attrs.asdict(ended))


def newest_sign(events: Path) -> tuple[int, int | None]:
    """The newest step that a log of events tells of, and when its newest event was: 0 and None without one."""
    step, seen_ms = 0, None
    for line in reversed(newest_lines(events, most=_TAIL_BYTES)):
        try:
            event: dict[str, Any] = orjson.loads(line)
            seen_ms = seen_ms or _number(event["time_ms"])
            step = _number(event.get("step") or 0)
        except (ValueError, KeyError, TypeError):
            continue  # the first line may be cut
        if step:
            break
    return step, seen_ms


def _number(value: Any) -> int:
    """A number that databases have room for.

    :raises ValueError: It is none.
    """
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(value)
    return value
