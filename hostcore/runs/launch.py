"""``config/launch.json``: a supervisor that a launcher has started, which may not have begun yet.

Of a run that executes where its directory is not visible, the launcher alone knows the status. The last status of a
launch that has ended is kept in ``config/launch.ended.json``, since engines forget ended jobs.
"""

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.job.names import is_builtin
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import CorruptDocument, UnreadableDocument, from_document, read_document, write_document
from hostcore.runs.record import RunRecord
from hostcore.runs.statuses import ALIVE
from hostcore_builtin_plugins.processes import seconds_since_change
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.launcher import LaunchHandle, LaunchStatus

#: Time for a launch to get its handle, and for a local supervisor whose process cannot be looked up to begin.
_LAUNCHING_SECONDS: Final = 60.0
#: A follower polls several times a second; the engine is not polled as often.
_FRESH_SECONDS: Final = 3.0
_ENDS: Final = ("succeeded", "failed", "cancelled", "preempted")

#: By launch: the time of the last poll of its launcher, and the status.
_polled: dict[tuple[Path, str], tuple[float, LaunchStatus]] = {}


@attrs.frozen(kw_only=True)
class Launch:
    """A launcher's promise of an attempt."""

    #: The attempt that the supervisor is to begin.
    attempt: int
    #: Milliseconds since 1970.
    submitted_ms: int
    #: The same for every try to launch it; see :class:`hostcore_hookspecs.LaunchContext`.
    launch_id: str = ""
    #: Whether the launched process sees this directory. If not, the launcher alone knows the status.
    sees_run_dir: bool = True
    #: The launcher's handle; None until there is one.
    handle: LaunchHandle | None = None
    #: The record of a service about the job, by which it finds the run again.
    recorded: Mapping[str, Any] | None = None

    def write(self, path: Path) -> None:
        """Write ``launch.json``."""
        write_document(path, attrs.asdict(self))

    @classmethod
    def read(cls, path: Path) -> "Launch | None":
        """Read the newest launch of a run; None if it was never started apart.

        :raises CorruptDocument: When the file is not a launch.
        """
        try:
            return from_document(cls, read_document(path), file=path)
        except FileNotFoundError:
            return None


def launch_seconds(directory: RunDirectory) -> float:
    """Return the seconds since a launch was written down, whatever the clock of the machine that did it."""
    try:
        return seconds_since_change(directory.launch)
    except FileNotFoundError:  # taken back in this moment
        return math.inf


def awaited_launch(directory: RunDirectory) -> Launch | None:
    """Return the launch whose attempt has not begun; None if there is none, or its supervisor has begun."""
    launch = Launch.read(directory.launch)
    return launch if launch and launch.attempt > newest_attempt(directory.attempts) else None


def launched_is_gone(directory: RunDirectory) -> bool:
    """Return whether a run waits for a supervisor that died before it began.

    Polls the launcher. False for a run without an awaited launch, and while the launcher does not know.
    """
    launch = awaited_launch(directory)
    if launch is None or _may_begin(launch, directory):
        return False
    return awaited_launch(directory) == launch  # it may have begun, and even ended, while the launcher was polled


def _may_begin(launch: Launch, directory: RunDirectory) -> bool:
    just_submitted = launch_seconds(directory) < _LAUNCHING_SECONDS
    if launch.handle is None:
        return just_submitted  # the submitting process has not written the handle yet, or has died
    try:
        return _poll(directory, launch.handle).status in ALIVE
    except HostcoreError:
        # It was started from another machine, most likely. A local supervisor needs seconds; a queue may take days.
        return just_submitted or not is_builtin(RunRecord.read(directory.record).spec().launcher.use, "local")


def launcher_status(directory: RunDirectory, launch: Launch, *, begun: bool) -> LaunchStatus:
    """Return the status of a launch by its launcher.

    :param begun: An attempt of this launch is known: it counts as running while the launcher does not know.
    """
    ended = _ended_status(directory, launch)
    if ended is not None:
        return ended
    if launch.handle is None:
        launching = launch_seconds(directory) < _LAUNCHING_SECONDS
        return LaunchStatus(status="submitted" if launching else "lost", message="it was never launched")
    key, now = (directory.path, launch.launch_id), time.monotonic()
    polled_at, status = _polled.get(key, (float("-inf"), None))
    if status is None or now - polled_at > _FRESH_SECONDS:
        try:
            status = _poll(directory, launch.handle)
        except HostcoreError as error:
            status = LaunchStatus(status="running" if begun else "submitted", message=f"its launcher: {error.message}")
        _polled[key] = (time.monotonic(), status)
    if status.status in _ENDS:
        with suppress(OSError):  # the reader may lack the right to write; the run's owner will keep it
            write_document(_ended(directory), {"launch_id": launch.launch_id, **attrs.asdict(status)})
    return status


def has_ended(directory: RunDirectory, launch: Launch) -> bool:
    """Return whether the launcher has reported the end of a launch."""
    return _ended_status(directory, launch) is not None


def _ended(directory: RunDirectory) -> Path:
    return directory.launch.with_name("launch.ended.json")


def _ended_status(directory: RunDirectory, launch: Launch) -> LaunchStatus | None:
    """Return the status that a launch ended with; None if that was not reported."""
    path = _ended(directory)
    try:
        found = read_document(path)
        return from_document(LaunchStatus, found, file=path) if found.get("launch_id") == launch.launch_id else None
    except (FileNotFoundError, CorruptDocument, UnreadableDocument):
        return None


def _poll(directory: RunDirectory, handle: LaunchHandle) -> LaunchStatus:
    # Not imported for a run without a launch: `hostcore list` stays quick.
    from hostcore.plugins.installed import discover
    from hostcore.plugins.launching import launcher_of

    spec = RunRecord.read(directory.record).spec()
    return launcher_of(spec.launcher, discover(), job_dir=spec.job_dir).poll(handle)
