"""``hostcore run``, started in processes that are to be killed."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
from command_line import COMMAND
from fork_server import hostcore

Start = Callable[..., "subprocess.Popen[Any]"]


def cold(arguments: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start the command in a new interpreter, as a shell does. It is seconds until it has imported everything."""
    return subprocess.Popen([COMMAND, *arguments], **options)


@attrs.frozen
class Started:
    """The command, started, and the file with what it prints."""

    process: "subprocess.Popen[Any]"
    output: Path

    @classmethod
    def start(cls, runs_dir: Path, job: Mapping[str, Any], *options: str, start: Start = hostcore) -> "Started":
        """Start it in the folder above the runs, where the trainer lies. What it prints is in a file among the runs."""
        path, output = runs_dir.parent / f"{job['run_id']}.json", runs_dir / f"{job['run_id']}.out"
        path.write_text(json.dumps(job))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
        with output.open("ab") as file:
            process = start(
                ["run", path.name, *options], cwd=path.parent, env=environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip
        return cls(process, output)

    @property
    def printed(self) -> str:
        """What all runs of the id have printed."""
        return self.output.read_text(errors="replace")

    @property
    def workers(self) -> list[int]:
        """The workers that it has started and that have not ended."""
        return workers_of(self.process.pid)

    def wait(self) -> int:
        """For its end; the exit code, or the negative number of the signal that ended it."""
        return self.process.wait(timeout=600)

    def kill_after(self, seconds: float, *, condition: Callable[[], Any] = lambda: True) -> int:
        """Kill it after a while, as soon as a condition holds, if it has not ended by then; as ``wait``."""
        time.sleep(seconds)
        while self.process.poll() is None and not condition():
            time.sleep(0.0005)  # it may hold for a moment
        self.process.kill()
        return self.wait()


def workers_of(supervisor: int) -> list[int]:
    """The children of a process that have a session of their own: a fork that was never made a worker has none."""
    path = Path(f"/proc/{supervisor}/task/{supervisor}/children")
    workers = []
    with suppress(OSError):  # it is gone itself
        for pid in map(int, path.read_text().split()):
            with suppress(ProcessLookupError):
                workers += [pid] if os.getsid(pid) == pid else []
    return workers


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that was not waited for is still in the table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
