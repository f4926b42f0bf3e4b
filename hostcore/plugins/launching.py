"""Launcher of a job, ready to be called; every exception becomes an error that names the launcher."""

from pathlib import Path
from typing import Any

import attrs

from hostcore.events.bounds import bounded
from hostcore.job.sections import ComponentUse
from hostcore.plugins.errors import guarded
from hostcore.plugins.hooks import Hooks
from hostcore.plugins.installed import Discovered
from hostcore.plugins.load import Component, load_named
from hostcore_hookspecs.launcher import LaunchContext, LaunchHandle, LaunchPlan, LaunchStatus, LogChunk


class JobLauncher:
    """The launcher that a job selected."""

    def __init__(self, component: Component) -> None:
        self._component = component
        self._hooks = Hooks([component], kinds=("launcher",))

    @property
    def sees_run_dir(self) -> bool:
        """Return whether the launched supervisor sees the run directory."""
        return bool(getattr(self._component.instance, "sees_run_dir", True))

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Describe what :meth:`launch` would do.

        :raises HostcoreError: See :meth:`launch`.
        """
        plan: LaunchPlan = self._call("plan", ctx, done="asked for its plan")
        return plan

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        """Start a supervisor.

        :raises HostcoreError: The launcher's own, or one that shows what it raised.
        """
        handle: LaunchHandle = self._call("launch", ctx, done="asked to launch")
        return handle

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        """Return the status of a launched supervisor.

        :raises HostcoreError: When it is unknown.
        """
        status: LaunchStatus = self._call("poll", handle, done="asked how it goes")
        return attrs.evolve(status, message=bounded(status.message)) if isinstance(status, LaunchStatus) else status

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        """Stop a launched supervisor.

        :param grace_seconds: How long the run may take to write a checkpoint.
        :raises HostcoreError: When it cannot be stopped.
        """
        self._call("cancel", handle, grace_seconds, done="asked to cancel")

    def read_logs(self, handle: LaunchHandle, since: str = "") -> LogChunk:
        """Return the next output of a launched supervisor.

        :param since: The ``next`` of the chunk before; empty for the beginning.
        :raises HostcoreError: When it cannot be read.
        """
        chunk: LogChunk = self._call("read_logs", handle, since, done="asked for its logs")
        return chunk

    def _call(self, hook: str, *arguments: object, done: str) -> Any:
        call = self._hooks.bind(hook, of=self._component)
        assert call is not None  # a launcher without a required method is not loaded
        with guarded(done, self._component.ref, code="plugin.launcher", pointer="/launcher"):
            return call(*arguments)


def launcher_of(use: ComponentUse, discovered: Discovered, *, job_dir: Path) -> JobLauncher:
    """Load a launcher by its name and its settings.

    ``import_paths`` of a job does not count: over HTTP, where it is false, the launchers are those of the operator.

    :param job_dir: Where relative paths in its settings start.
    :raises HostcoreError: When it is not installed, or cannot be loaded.
    """
    return JobLauncher(load_named(use, "launcher", discovered, pointer="/launcher", job_dir=job_dir, import_paths=True))
