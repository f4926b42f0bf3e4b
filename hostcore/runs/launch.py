"""``config/launch.json``: a supervisor that was started apart from the terminal, and may not have begun yet."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from hostcore.job.names import is_builtin
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import construct, read_document, write_document
from hostcore.runs.record import RunRecord
from hostcore_builtin_plugins.processes import seconds_since_change
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.launcher import LaunchHandle

#: How long a local supervisor may take to begin where its process cannot be looked up, in seconds.
_UNSEEN_SECONDS = 60.0


@attrs.frozen(kw_only=True)
class Launch:
    """A launcher's promise of an attempt."""

    #: The attempt that the supervisor is to begin.
    attempt: int
    #: Milliseconds since 1970.
    submitted_ms: int
    #: The same for every try to launch it; see :class:`hostcore_hookspecs.LaunchContext`.
    launch_id: str = ""
    #: Whether what is launched sees this directory. If not, the launcher alone knows how it goes.
    sees_run_dir: bool = True
    #: What the launcher gave; None until it has.
    handle: LaunchHandle | None = None
    #: What a service has recorded of the job, for itself: it finds the run again by this.
    recorded: Mapping[str, Any] | None = None

    def write(self, path: Path) -> None:
        """Write ``launch.json``."""
        write_document(path, attrs.asdict(self))

    @classmethod
    def read(cls, path: Path) -> "Launch | None":
        """The newest launch of a run; None if it was never started apart.

        :raises CorruptDocument: When the file is not a launch.
        """
        try:
            found: dict[str, Any] = read_document(path)
        except FileNotFoundError:
            return None
        handle = construct(LaunchHandle, found["handle"], file=path) if found.get("handle") else None
        return construct(cls, {**found, "handle": handle}, file=path)


def launch_seconds(directory: RunDirectory) -> float:
    """Return the seconds since a launch was written down, whatever the clock of the machine that did it."""
    try:
        return seconds_since_change(directory.launch)
    except FileNotFoundError:  # taken back in this moment
        return math.inf


def awaited_launch(directory: RunDirectory) -> Launch | None:
    """The launch whose attempt has not begun; None if there is none, or its supervisor has come."""
    launch = Launch.read(directory.launch)
    return launch if launch and launch.attempt > newest_attempt(directory.attempts) else None


def launched_is_gone(directory: RunDirectory) -> bool:
    """Whether a run waits for a supervisor that died before it began, and that will never come.

    Asks the launcher. False for a run without an awaited launch, and where the launcher cannot tell.
    """
    launch = awaited_launch(directory)
    if launch is None or _may_come(launch, directory):
        return False
    return awaited_launch(directory) == launch  # it may have begun, and even ended, while the launcher was asked


def _may_come(launch: Launch, directory: RunDirectory) -> bool:
    # Not imported for a run without an awaited launch: `hostcore list` stays quick.
    from hostcore.plugins.installed import discover
    from hostcore.plugins.launching import launcher_of

    just_submitted = launch_seconds(directory) < _UNSEEN_SECONDS
    if launch.handle is None:
        return just_submitted  # the submitting process has not written the handle yet, or has died
    record = RunRecord.read(directory.record)
    spec = record.spec()
    try:
        status = launcher_of(spec, discover()).poll(launch.handle)
    except HostcoreError:
        # It was started from another machine, most likely. A local supervisor needs seconds; a queue may take days.
        return just_submitted or not is_builtin(spec.launcher.use, "local")
    return status.status in ("submitted", "running")
