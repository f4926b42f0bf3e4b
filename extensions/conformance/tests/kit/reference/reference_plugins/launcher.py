"""A launcher: a process of this machine, behind a small one that writes down how it ended."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs

from hostcore_hookspecs import FatalError, LaunchContext, LaunchHandle, LaunchPlan, LaunchStatus, LogChunk

#: ``FOLDER COMMAND…``: runs a command, writes its process id and its exit code, and holds a lock meanwhile.
_RUNNER = """
import fcntl, json, pathlib, signal, subprocess, sys
folder = pathlib.Path(sys.argv[1])
lock = (folder / "lock").open("w")
fcntl.flock(lock, fcntl.LOCK_EX)
def write(name, value):
    (folder / (name + ".part")).write_text(json.dumps(value))
    (folder / (name + ".part")).replace(folder / name)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
def asked_again():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
process = subprocess.Popen(sys.argv[2:], preexec_fn=asked_again)
write("started.json", process.pid)
write("ended.json", process.wait())
"""
_LOOK_SECONDS = 0.02
_CHUNK_BYTES = 1 << 16


class ReferenceLauncher:
    """Everything that it must know later is in files of the run directory, and in the handle."""

    @attrs.frozen
    class Settings:
        """Settings of the launcher."""

        #: The folder in the run directory for its files.
        folder: str = "launch"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Show the names of the variables, and not their values."""
        variables = [f"{name}=********" for name in ctx.env]
        return LaunchPlan(summary="a process of this machine", document=shlex.join([*variables, *ctx.command]))

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        """Start the runner in a session of its own; it has neither a terminal nor a pipe of this process."""
        folder = Path(ctx.run_dir, self.settings.folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("started.json", "ended.json"):
            (folder / name).unlink(missing_ok=True)
        with (folder / "log").open("ab") as log:
            runner = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _RUNNER, str(folder), *ctx.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **ctx.env},
                start_new_session=True,
            )
        pid = self._started(folder, runner)
        ctx.log(f"process {pid} runs it")
        details = {"pid": pid, "folder": str(folder), "run_dir": ctx.run_dir}
        return LaunchHandle(launcher="reference", id=str(pid), details=details)

    @staticmethod
    def _started(folder: Path, runner: subprocess.Popen[bytes]) -> int:
        while (pid := _read(folder / "started.json")) is None:
            if runner.poll() is not None:
                last = (folder / "log").read_text(errors="replace").strip().rpartition("\n")[2]
                raise FatalError(f"the command cannot be started: {last}")
            time.sleep(_LOOK_SECONDS)
        return int(pid)

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        """Believe result.json; without one, only the exit code is known."""
        folder = Path(handle.details["folder"])
        if _is_locked(folder / "lock"):
            return LaunchStatus(status="running")
        code = _read(folder / "ended.json")
        if code is None:
            return LaunchStatus(status="lost", message="nothing of it is left")
        result = _read(Path(handle.details["run_dir"], "result.json"))
        if result is None:
            return LaunchStatus(status="failed" if code else "lost", message="it left no result", exit_code=code)
        return LaunchStatus(status=result["status"], message=result.get("reason") or "", exit_code=code)

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        """Ask the command, wait, and then kill what is left of its process group."""
        if self.poll(handle).status != "running":
            return
        _signal(handle.details["pid"], signal.SIGINT)
        deadline = time.monotonic() + grace_seconds
        while self.poll(handle).status == "running":
            if time.monotonic() > deadline:
                _signal(handle.details["pid"], signal.SIGKILL)
                return
            time.sleep(_LOOK_SECONDS)

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        """``since`` is an offset in bytes; half a character at the end is left for the next time."""
        offset = int(since or 0)
        try:
            with Path(handle.details["folder"], "log").open("rb") as log:
                log.seek(offset)
                data = log.read(_CHUNK_BYTES)
        except FileNotFoundError:
            return LogChunk(text="", next=str(offset))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(data)
        return LogChunk(text=text, next=str(offset + len(data) - len(decoder.getstate()[0])))


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def _is_locked(path: Path) -> bool:
    try:
        with path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, number)


class ThisMachine:
    """What it starts runs here, where the checks can look at it."""

    runs_here = True
