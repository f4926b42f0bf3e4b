"""The folder of a launch: messages between the launcher and its keepers. The package lists the writer of each file."""

import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from hostcore_builtin_plugins.processes import seconds_since_change
from hostcore_engines.keeper.launch_spec import LaunchSpec

#: A keeper on another machine that has not shown itself for so long is gone.
_SILENT_SECONDS: Final = 60.0


class LaunchFolder:
    """The folder of one launch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, run_dir: str, launch_id: str) -> "LaunchFolder":
        """The folder of a launch, below the run directory."""
        return cls(Path(run_dir, "config", f"launch.{label(launch_id)}"))

    def prepare(self, launch_spec: LaunchSpec) -> LaunchSpec:
        """Write down what is to be run, unless an earlier try of this launch has.

        :return: What is to be run.
        :raises OSError: When the run directory cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._write_once("errand.json", launch_spec.as_dict())
        return self.launch_spec()

    def launch_spec(self) -> LaunchSpec:
        """Return the command to run.

        :raises OSError: When it is not there.
        """
        return LaunchSpec.of(json.loads((self.path / "errand.json").read_text()))

    def claim(self, node: int, process: Mapping[str, Any]) -> bool:
        """Take a node; whether no keeper has before.

        :param process: ``host``, ``pid`` and ``started`` of the keeper.
        """
        return self._write_once(f"node-{node}.json", process)

    def leave(self, node: int) -> None:
        """Give up a node that was claimed, where nothing has begun: another keeper may take it."""
        with suppress(FileNotFoundError):
            (self.path / f"node-{node}.json").unlink()

    def claimed(self, node: int) -> Mapping[str, Any] | None:
        """The keeper that has taken a node; None if none has."""
        return self._read(f"node-{node}.json")

    def show_life(self, node: int) -> None:
        """The keeper of a node is there."""
        with suppress(FileNotFoundError):  # the run was removed
            (self.path / f"node-{node}.alive").touch()

    def was_seen_lately(self, node: int) -> bool:
        """Return whether a keeper on another machine has touched its file recently."""
        try:
            return seconds_since_change(self.path / f"node-{node}.alive") < _SILENT_SECONDS
        except FileNotFoundError:
            return False

    def end(self, node: int, exit_code: int) -> None:
        """Record the exit code of a node's command; below zero: a signal."""
        with suppress(FileNotFoundError):
            self._write_once(f"node-{node}.end.json", {"exit_code": exit_code})

    def ended(self, node: int) -> int | None:
        """The exit code of what ran on a node; None if it has not ended, or its end was not recorded."""
        found = self._read(f"node-{node}.end.json")
        return None if found is None else int(found["exit_code"])

    def meet(self, host: str, port: int) -> None:
        """Record the meeting point of the agents; called by node 0."""
        self._write_once("meeting.json", {"host": host, "port": port})

    def meeting(self) -> tuple[str, int] | None:
        """Return the host and port where the agents meet; None before node 0 has written them."""
        found = self._read("meeting.json")
        return None if found is None else (found["host"], found["port"])

    def cancel(self, grace_seconds: float) -> None:
        """Ask the keepers to stop what they run. A later request can only shorten the time."""
        earlier = self.cancelled()
        grace = grace_seconds if earlier is None else min(grace_seconds, earlier)
        with suppress(FileNotFoundError):
            self._replace("cancel.json", {"grace_seconds": grace})

    def cancelled(self) -> float | None:
        """Return the grace period of a cancel request, in seconds after a keeper first sees it; None without one."""
        found = self._read("cancel.json")
        return None if found is None else float(found["grace_seconds"])

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.path / name).read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found

    def _write_once(self, name: str, content: object) -> bool:
        part = self._written(name, content)
        try:
            os.link(part, self.path / name)  # whole or not at all, and never over another's
        except FileExistsError:
            return False
        finally:
            part.unlink()
        return True

    def _replace(self, name: str, content: object) -> None:
        self._written(name, content).replace(self.path / name)

    def _written(self, name: str, content: object) -> Path:
        part = self.path / f".{name}.{secrets.token_hex(4)}.tmp"
        # Variables may be secrets.
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(content, file)
        return part


def label(launch_id: str) -> str:
    """A launch id as the name of a file, or of an engine's object."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", launch_id)
