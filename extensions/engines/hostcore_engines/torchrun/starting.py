"""Starting the keeper of a node: as a process of this machine, or of another one through ssh."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hostcore_engines.keeper.folder import LaunchFolder
from hostcore_engines.torchrun.settings import HERE
from hostcore_hookspecs import FatalError, LaunchContext, TransientError

_KEEPER: Final = "hostcore_engines.keeper"
#: For a keeper to begin, or for ssh to reach a machine.
_START_SECONDS: Final = 60.0
#: As ssh ends when it could not do what it was asked to.
_SSH_FAILED: Final = 255
#: As shells end, plus the number, when a signal has ended the command.
_SIGNALLED: Final = 128


def start_keeper(ctx: LaunchContext, folder: LaunchFolder, node: int, host: str, *, ssh: Sequence[str]) -> None:
    """Start the keeper of a node, and see that it begins.

    :param ssh: Options of ``ssh``.
    :raises TransientError: It is not known whether it has begun, or the machine is not reached now.
    :raises FatalError: It cannot begin.
    """
    command = _command(ctx, folder, node, host, ssh)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_START_SECONDS,
            check=False,
            env={**os.environ, **ctx.env, **_meeting_place(ctx)} if host == HERE else None,
            start_new_session=True,  # Ctrl-C is for this process alone
        )
    except subprocess.TimeoutExpired as error:
        raise TransientError(f"{host} did not start node {node} within {_START_SECONDS:g} s") from error
    except BlockingIOError as error:
        raise TransientError(f"this machine takes no more processes: {error}") from error
    has_begun = done.returncode == 0 and _is_claimed(folder, node)
    if not has_begun:
        raise _failure(ctx, node, host, done)


def log_of(run_dir: str, node: int) -> Path:
    """Return the path of a node's output."""
    return Path(run_dir, "logs", f"torchrun.{node}.log")


def _command(ctx: LaunchContext, folder: LaunchFolder, node: int, host: str, ssh: Sequence[str]) -> list[str]:
    python = _python(ctx, host)
    command = [python, "-P", "-m", _KEEPER, str(folder.path), str(node), "--detach", str(log_of(ctx.run_dir, node))]
    if host == HERE:
        return command
    around = [f"{name}={value}" for name, value in _meeting_place(ctx).items()]
    # ssh hands one line to a shell there.
    return ["ssh", "-o", "BatchMode=yes", *ssh, "--", host, shlex.join(["env", *around, *command])]


def _meeting_place(ctx: LaunchContext) -> dict[str, str]:
    """Return the variable that makes the ranks meet in the parent of the run directory."""
    return {"HOSTCORE_RUNS_DIR": str(Path(ctx.run_dir).parent)}


def _python(ctx: LaunchContext, host: str) -> str:
    return sys.executable if host == HERE else ctx.command[0]


def _is_claimed(folder: LaunchFolder, node: int) -> bool:
    list(folder.path.iterdir())  # NFS looks again at a folder that is listed
    return folder.claimed(node) is not None


def _failure(
    ctx: LaunchContext, node: int, host: str, done: "subprocess.CompletedProcess[bytes]"
) -> FatalError | TransientError:
    """Error for a keeper that has not begun."""
    said = done.stdout.decode(errors="replace").strip().splitlines()
    words = f": {said[-1]}" if said else ""
    if host != HERE and done.returncode == _SSH_FAILED:
        return TransientError(
            f"ssh does not reach {host}{words}",
            pointer="/launcher/hosts",
            hint=f"`ssh -o BatchMode=yes {host} true` has to work, without a password or a question",
        )
    if done.returncode < 0 or done.returncode > _SIGNALLED:
        number = -done.returncode if done.returncode < 0 else done.returncode - _SIGNALLED
        return TransientError(f"what starts node {node} on {host} was ended by signal {number}{words}")
    if done.returncode == 0:
        return FatalError(
            f"node {node} has started on {host}, but not in the run directory that is seen here",
            pointer="/launcher/hosts",
            file=ctx.run_dir,
            hint="the machines have to share the folder of the runs, at the same path",
        )
    return FatalError(
        f"node {node} cannot start on {host}{words}",
        pointer="/launcher/hosts",
        hint=f"hostcore has to be installed there, with {_python(ctx, host)}, and see {ctx.run_dir}",
    )
