"""The launcher ``local``: a process of this machine that outlives the one that started it."""

import codecs
import os
import shlex
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import orjson

from hostcore_hookspecs import (
    FatalError,
    LaunchContext,
    LaunchHandle,
    LaunchPlan,
    LaunchStatus,
    LogChunk,
    TransientError,
)

_POLL_SECONDS = 0.05
#: How long a killed process may take to be gone.
_KILLED_SECONDS = 5.0
_CHUNK_BYTES = 1 << 20


class LocalLauncher:
    """Starts supervisors on this machine, each in a session of its own."""

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """See :func:`hostcore_hookspecs.launcher.plan`."""
        summary = f"a process on {socket.gethostname()} that goes on when this one ends"
        return LaunchPlan(summary=summary, document=shlex.join(ctx.command))

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        """See :func:`hostcore_hookspecs.launcher.launch`."""
        log = Path(ctx.run_dir, "logs", "supervisor.log")
        try:
            earlier_result = _changed_ns(Path(ctx.run_dir, "result.json"))
            log.parent.mkdir(parents=True, exist_ok=True)
            pid = _spawn(ctx, log)
        except BlockingIOError as error:
            raise TransientError(f"this machine takes no more processes: {error}") from error
        except OSError as error:
            raise FatalError(f"cannot start {ctx.command[0]}: {error}", file=str(error.filename or log)) from error
        ctx.log(f"process {pid} runs it; its output goes to {log}")
        process = _look(pid)
        return LaunchHandle(
            launcher="local",
            id=str(pid),
            details={
                "pid": pid,
                "started": process.started if process else "",
                "host": socket.gethostname(),
                "run_dir": ctx.run_dir,
                "log": str(log),
                "earlier_result": earlier_result,
            },
        )

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        """See :func:`hostcore_hookspecs.launcher.poll`."""
        _require_this_machine(handle)
        exit_code = _reap(handle)
        if _is_running(handle):
            return LaunchStatus(status="running")
        result = Path(handle.details["run_dir"], "result.json")
        # A run that was resumed has the result of its earlier attempt until it has one of its own.
        if _changed_ns(result) in (None, handle.details["earlier_result"]):
            message = f"process {handle.id} ended without a result; its last words are in {handle.details['log']}"
            return LaunchStatus(status="lost", message=message, exit_code=exit_code)
        try:
            ended: dict[str, Any] = orjson.loads(result.read_bytes())
            status = str(ended["status"])
        except (ValueError, TypeError, KeyError) as error:
            message = f"process {handle.id} ended, and {result} cannot be read: {error!r}"
            return LaunchStatus(status="lost", message=message, exit_code=exit_code)
        error_message = (ended.get("error") or {}).get("message")
        message = str(error_message or ended.get("reason") or "")
        return LaunchStatus(status=status, message=message, exit_code=ended.get("exit_code"))

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        """See :func:`hostcore_hookspecs.launcher.cancel`.

        The supervisor alone gets SIGINT, as from Ctrl-C, and stops its workers. By force, its process group is killed;
        workers have sessions of their own, and end when they find its pipe closed.
        """
        _require_this_machine(handle)
        _reap(handle)
        try:
            if _is_running(handle):
                os.kill(handle.details["pid"], signal.SIGINT)
                if not _has_ended(handle, grace_seconds) and _is_running(handle):
                    os.killpg(handle.details["pid"], signal.SIGKILL)
                    _has_ended(handle, _KILLED_SECONDS)
        except ProcessLookupError:
            pass  # it ended just now, which is what was wanted
        except PermissionError as error:
            hint = "cancel it as the user who started it"
            raise FatalError(f"process {handle.id} belongs to another user", hint=hint) from error

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        """See :func:`hostcore_hookspecs.launcher.read_logs`.

        :param since: A byte offset.
        :raises FatalError: If ``since`` is none.
        """
        if since and not since.isdecimal():
            raise FatalError(f"{since!r} is no place in the log", hint="pass what the chunk before gave as 'next'")
        offset = int(since or 0)
        try:
            with Path(handle.details["log"]).open("rb") as log:
                log.seek(offset)
                data = log.read(_CHUNK_BYTES)
        except FileNotFoundError:
            return LogChunk(text="", next=str(offset))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(data)
        half_a_character = len(decoder.getstate()[0])
        return LogChunk(text=text, next=str(offset + len(data) - half_a_character))


def _spawn(ctx: LaunchContext, log: Path) -> int:
    """Start the command and keep nothing of it: unlike ``Popen``, whose object wants to outlive the process."""
    return os.posix_spawnp(
        ctx.command[0],
        list(ctx.command),
        {**os.environ, **ctx.env},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        # A shell's background job ignores SIGINT, and Python SIGPIPE; neither is meant for the new process.
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
        setsigmask=[],
    )


@attrs.frozen(kw_only=True)
class _Process:
    """A process as the system lists it."""

    #: When it started, in the system's own terms: with the pid, it tells it apart from every other process.
    started: str
    #: Dead, and waiting for its parent to ask how it ended.
    is_zombie: bool


def _look(pid: int) -> _Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _look_with_ps(pid)
    # The command's name, which may have spaces, is in parentheses (proc_pid_stat(5)).
    state, *fields = stat.rpartition(b")")[2].decode().split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return _Process(started=f"{boot} {fields[18]}", is_zombie=state in "ZX")


def _look_with_ps(pid: int) -> _Process | None:
    asked = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
    )
    state, _, started = asked.stdout.strip().partition(" ")
    return _Process(started=started.strip(), is_zombie=state.startswith("Z")) if started else None


def _is_running(handle: LaunchHandle) -> bool:
    process = _look(handle.details["pid"])
    return process is not None and process.started == handle.details["started"] and not process.is_zombie


def _reap(handle: LaunchHandle) -> int | None:
    """The exit code, if it was a child of this process and has ended; asking removes the zombie, and works once."""
    process = _look(handle.details["pid"])
    if process is None or process.started != handle.details["started"] or not process.is_zombie:
        return None
    with suppress(ChildProcessError):
        pid, status = os.waitpid(handle.details["pid"], os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None
    return None


def _has_ended(handle: LaunchHandle, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while _is_running(handle):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    _reap(handle)
    return True


def _require_this_machine(handle: LaunchHandle) -> None:
    host = handle.details["host"]
    if host != socket.gethostname():
        raise FatalError(
            f"process {handle.id} was started on {host}, and this is {socket.gethostname()}",
            hint=f"ask on {host}",
        )


def _changed_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
