"""The launcher contract: starts a supervisor somewhere (here, Kubernetes, Slurm, Ray) and watches it from afar.

What is launched sees the run directory, at the same path: on this machine, or on a file system that the machines
share. An instance with the attribute ``sees_run_dir = False`` declares that it does not. It then gets the job itself:
``ctx.document`` is to lie in a file there, whose path takes the place of ``ctx.job_path`` in ``ctx.command``. Such a
run is seen from afar only by the launcher's status of it, and by its mirror (``checkpoint_base_uri``).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from hostcore_hookspecs.job import Job
from hostcore_hookspecs.markers import hookspec

REQUIRED = ("plan", "launch", "poll", "cancel", "read_logs")


@attrs.frozen(kw_only=True)
class LaunchContext:
    """Launch: the job, its command and its environment."""

    job: Job
    #: The job file to hand on; absolute.
    job_path: str
    #: The job to hand on, as plain JSON: it is marked to run where it arrives.
    document: Mapping[str, Any] = attrs.field(factory=dict)
    #: Names this launch, the same for every try of it. A try may have been killed before the handle was written
    #: down: a launcher that finds what an earlier try has started returns its handle, and starts nothing.
    launch_id: str = ""
    #: A name for the engine: lower case letters, digits and ``-``, at most 63 characters, beginning with a letter
    #: (RFC 1123). Runs of the same name do not exist at the same time.
    name: str = ""
    #: Absolute.
    run_dir: str
    #: The argument list to start.
    command: Sequence[str]
    #: Environment variables to set, beside those of the launcher.
    env: Mapping[str, str]
    #: Print a line for the user.
    log: Callable[[str], None]


@attrs.frozen(kw_only=True)
class LaunchPlan:
    """Preview of a launch, for people to read before it."""

    #: One line: ``PyTorchJob trainer-1 in namespace ml, 2 nodes with 8 GPUs``.
    summary: str
    #: What it would submit: a manifest, a batch script, a command. It is shown and recorded, so it holds no values of
    #: ``ctx.env``, which may be secrets.
    document: str = ""


@attrs.frozen(kw_only=True)
class LaunchHandle:
    """Identifies what was launched. Plain JSON, so that another process can poll it, days later."""

    launcher: str
    #: The launcher's own name for it: a process id, a Slurm job id, an object name.
    id: str
    details: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class LaunchStatus:
    """Status of a launch."""

    #: ``submitted``, ``running``, ``succeeded``, ``failed``, ``cancelled``, ``preempted`` or ``lost``.
    status: str
    message: str = ""
    exit_code: int | None = None


@attrs.frozen(kw_only=True)
class LogChunk:
    """A piece of what the launched process printed."""

    text: str
    #: What to pass as ``since`` to read on.
    next: str


@hookspec(firstresult=True)
def plan(ctx: LaunchContext) -> LaunchPlan:
    """Called by ``hostcore validate`` and before :func:`launch`: return a preview of the launch, without launching.

    :param ctx: What is to be started.
    :raises Exception: The job is not launched, and invalid for ``hostcore validate``.
    """


@hookspec(firstresult=True)
def launch(ctx: LaunchContext) -> LaunchHandle:
    """Called to start the supervisor; twice for one ``ctx.launch_id`` only if it is not known how the first call ended.

    Returns as soon as the engine has accepted it.

    :param ctx: What is to be started.
    :raises TransientError: The engine did not answer; it may be tried again.
    :raises FatalError: The engine refused. With the code ``launch.not_started`` it is certain that no call for this
        ``ctx.launch_id`` has started anything, so that the job ends even if an earlier call was cut short.
    :raises Exception: The job is not launched, as with ``FatalError``.
    """


@hookspec(firstresult=True)
def poll(handle: LaunchHandle) -> LaunchStatus:
    """Called now and then, possibly by another process than the one that launched.

    :param handle: What :func:`launch` returned.
    :raises TransientError: The engine did not answer.
    :raises FatalError: It refuses to answer; with the code ``launch.elsewhere``, only another machine can.
    :raises Exception: The run keeps the status that it had; it is asked again.
    """


@hookspec(firstresult=True)
def cancel(handle: LaunchHandle, grace_seconds: float) -> None:
    """Called to stop it: by a request, and by force once the time is over.

    :param handle: What :func:`launch` returned.
    :param grace_seconds: How long the run may take to write a checkpoint.
    :raises Exception: Reported by the command that cancels; the run continues.
    """


@hookspec(firstresult=True)
def read_logs(handle: LaunchHandle, since: str) -> LogChunk:
    """Called to read what the launched process printed.

    :param handle: What :func:`launch` returned.
    :param since: Empty for the beginning; else the ``next`` of the chunk before.
    :raises Exception: Reported by the command that reads; the run continues.
    """
