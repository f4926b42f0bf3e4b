"""The launcher ``local``: a process of this machine that outlives the one that started it."""

import os
import shlex
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import attrs

from hostcore_builtin_plugins.processes import identity, is_here, look, runs_here
from hostcore_builtin_plugins.run_result import earlier_result, read_log, result_of
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


class LocalLauncher:
    """Starts supervisors on this machine, each in a session of its own."""

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """See :func:`hostcore_hookspecs.launcher.plan`."""
        _require_one_machine(ctx)
        summary = f"a process on {socket.gethostname()} that goes on when this one ends"
        return LaunchPlan(summary=summary, document=shlex.join(ctx.command))

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        """See :func:`hostcore_hookspecs.launcher.launch`."""
        _require_one_machine(ctx)
        log = Path(ctx.run_dir, "logs", "supervisor.log")
        try:
            earlier = earlier_result(ctx.run_dir, ctx.launch_id)
            log.parent.mkdir(parents=True, exist_ok=True)
            pid = _spawn_once(ctx, log) if ctx.launch_id else _spawn(ctx.command, ctx.env, log)
        except BlockingIOError as error:
            raise TransientError(f"this machine takes no more processes: {error}") from error
        except OSError as error:
            raise FatalError(f"cannot start {ctx.command[0]}: {error}", file=str(error.filename or log)) from error
        ctx.log(f"process {pid} runs it; its output goes to {log}")
        return LaunchHandle(
            launcher="local",
            id=str(pid),
            details={
                **identity(pid),
                "run_dir": ctx.run_dir,
                "log": str(log),
                "earlier_result": earlier,
            },
        )

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        """See :func:`hostcore_hookspecs.launcher.poll`."""
        _require_this_machine(handle)
        exit_code = _reap(handle)
        if runs_here(handle.details):
            return LaunchStatus(status="running")
        ended = result_of(handle.details["run_dir"], handle.details["earlier_result"])
        if ended is None:
            message = f"process {handle.id} ended without a result; the end of its output is in {handle.details['log']}"
            return LaunchStatus(status="lost", message=message, exit_code=exit_code)
        return ended if ended.status != "lost" else attrs.evolve(ended, exit_code=exit_code)

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        """See :func:`hostcore_hookspecs.launcher.cancel`.

        The supervisor alone gets SIGINT, as from Ctrl-C, and stops its workers. By force, its process group is killed;
        workers have sessions of their own, and end when they find its pipe closed.
        """
        _require_this_machine(handle)
        _reap(handle)
        try:
            if runs_here(handle.details):
                os.kill(handle.details["pid"], signal.SIGINT)
                if not _has_ended(handle, grace_seconds) and runs_here(handle.details):
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
        return read_log(Path(handle.details["log"]), since)


def _require_one_machine(ctx: LaunchContext) -> None:
    """See that the job asks for nothing that takes an engine. Processors and memory are what it has."""
    resources = ctx.job.resources
    engine = 'remove the key, or name another launcher: "launcher": "slurm"; `hostcore plugins` shows them'
    devices = 'name the devices: "devices": ["cuda:0", "cuda:1"]; or remove the key'
    for key, asks, hint in (
        ("num_nodes", resources.num_nodes > 1, engine),
        ("image", resources.image, engine),
        ("namespace", resources.namespace, engine),
        ("gpus_per_node", resources.gpus_per_node > 1 and not ctx.document.get("devices"), devices),
    ):
        if asks:
            raise FatalError(
                f"the launcher local starts processes of this machine, and knows no {key}",
                pointer=f"/resources/{key}",
                hint=hint,
            )


#: Takes the name of this launch before it becomes the command: of two that were started for one launch, one ends here.
_ONCE = 'set -C; echo "$$" >"$0" || exit; exec "$@"'
#: How long a shell may take to write down its number, on a machine that is busy.
_STARTED_SECONDS = 60.0


def _spawn_once(ctx: LaunchContext, log: Path) -> int:
    """Start the command unless an earlier try of this launch has; the process that runs it."""
    started = Path(ctx.run_dir, "config", f"started.{ctx.launch_id}")
    if not started.exists():
        started.parent.mkdir(parents=True, exist_ok=True)
        # `exec` keeps the process, so that its number is the command's.
        _reap_losers(_spawn(["/bin/sh", "-c", _ONCE, str(started), *ctx.command], ctx.env, log), started)
    return _started(started)


def _started(file: Path) -> int:
    deadline = time.monotonic() + _STARTED_SECONDS
    while True:
        with suppress(FileNotFoundError):
            if (text := file.read_text()).endswith("\n"):
                return int(text)
        if time.monotonic() > deadline:
            raise TransientError("the process that was started has not come so far as to say so")
        time.sleep(_POLL_SECONDS)


def _reap_losers(pid: int, started: Path) -> None:
    """Forget a shell that came too late; the poll reaps the process that runs the command."""
    if _started(started) != pid:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _spawn(command: Sequence[str], env: Mapping[str, str], log: Path) -> int:
    """Start a command and keep nothing of it: unlike ``Popen``, whose object wants to outlive the process."""
    return os.posix_spawnp(
        command[0],
        list(command),
        {**os.environ, **env},
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


def _reap(handle: LaunchHandle) -> int | None:
    """The exit code, if it was a child of this process and has ended; asking removes the zombie, and works once."""
    process = look(handle.details["pid"])
    if process is None or process.started != handle.details["started"] or not process.is_zombie:
        return None
    with suppress(ChildProcessError):
        pid, status = os.waitpid(handle.details["pid"], os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None
    return None


def _has_ended(handle: LaunchHandle, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while runs_here(handle.details):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    _reap(handle)
    return True


def _require_this_machine(handle: LaunchHandle) -> None:
    if not is_here(handle.details):
        host = handle.details["host"]
        here = "another container of it or boot" if host == socket.gethostname() else socket.gethostname()
        raise FatalError(
            f"process {handle.id} was started on {host}, and this is {here}",
            code="launch.elsewhere",
            hint=f"ask on {host}",
        )
