"""The launcher ``torchrun``: an agent of torchrun on each machine, kept by a process that outlives this one."""

import secrets
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hostcore_builtin_plugins.run_result import earlier_result, result_of
from hostcore_engines.keeper.agent import Agent
from hostcore_engines.keeper.asking import any_kept, stop
from hostcore_engines.keeper.folder import LaunchFolder, label
from hostcore_engines.keeper.following import read_logs
from hostcore_engines.keeper.launch_spec import LaunchSpec
from hostcore_engines.torchrun.settings import HERE, TorchrunSettings, check_settings, hosts_of
from hostcore_engines.torchrun.starting import log_of, start_keeper
from hostcore_hookspecs import (
    FatalError,
    LaunchContext,
    LaunchHandle,
    LaunchPlan,
    LaunchStatus,
    LogChunk,
    TransientError,
)

#: For keepers to end by force what does not stop.
_FORCE_SECONDS: Final = 20.0
#: Where several agents are on this machine alone.
_LOOPBACK: Final = "127.0.0.1"
#: With min_nodes: a lost node costs the ranks of the others a start.
_ELASTIC_RESTARTS: Final = 3
#: What a rank may take longer to stop than the run's own grace.
_STOP_SECONDS: Final = 10.0


class TorchrunLauncher:
    """Starts one agent for each node, which meet on the first one."""

    Settings = TorchrunSettings

    def __init__(self, *, settings: TorchrunSettings | None = None) -> None:
        self._settings = settings or TorchrunSettings()
        check_settings(self._settings)

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """See :func:`hostcore_hookspecs.launcher.plan`."""
        hosts = hosts_of(self._settings, ctx)
        agent = self._agent(ctx, hosts, rendezvous_id=label(ctx.launch_id or ctx.name or ctx.job.run_id))
        where = _counted(hosts)
        elastic = f", and goes on with {agent.min_nodes}" if agent.min_nodes < agent.nodes else ""
        each = f"{agent.ranks_per_node} rank{'s' if agent.ranks_per_node > 1 else ''} each"
        commands = [
            shlex.join(
                agent.command(
                    node,
                    host=agent.host or "HOST",
                    port=agent.port or "PORT",
                    address=agent.address(node),
                    rank=ctx.command,
                )
            )
            for node in range(agent.nodes)
        ]
        lines = [f"# {host}\n{command}" for host, command in zip(hosts, commands, strict=True)]
        return LaunchPlan(summary=f"torchrun on {where}, {each}{elastic}", document="\n".join(lines) + "\n")

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        """See :func:`hostcore_hookspecs.launcher.launch`."""
        hosts = hosts_of(self._settings, ctx)
        self._require_programs(ctx, hosts)
        launch_id = ctx.launch_id or secrets.token_hex(8)
        folder = LaunchFolder.of(ctx.run_dir, launch_id)
        launch_spec = self._prepare(ctx, folder, self._agent(ctx, hosts, rendezvous_id=label(launch_id)))
        try:
            for node, host in enumerate(hosts):
                if folder.claimed(node) is None:
                    start_keeper(ctx, folder, node, host, ssh=self._settings.ssh)
        except BaseException as error:
            # A try that can be repeated finds the others; one that cannot must leave nothing behind.
            if not (ctx.launch_id and isinstance(error, TransientError)):
                stop(folder, range(len(hosts)), 0.0, patience_seconds=_FORCE_SECONDS)
            raise
        ctx.log(f"{len(hosts)} agents run it; the output of node 0 goes to {log_of(ctx.run_dir, 0)}")
        return LaunchHandle(
            launcher="torchrun",
            id=label(launch_id),
            details={
                "run_dir": ctx.run_dir,
                "hosts": list(hosts),
                "earlier_result": launch_spec.earlier_result,
            },
        )

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        """See :func:`hostcore_hookspecs.launcher.poll`."""
        folder, nodes = _found(handle)
        if any_kept(folder, nodes):
            return LaunchStatus(status="running")
        run_dir = handle.details["run_dir"]
        result = result_of(run_dir, handle.details["earlier_result"])
        if result is not None:
            return result
        if folder.cancelled() is not None:
            return LaunchStatus(status="cancelled", message="it was ended by force, and has left no result")
        said = [(node, code) for node in range(nodes) if (code := folder.ended(node)) is not None]
        failed = [f"on node {node} with {code}" for node, code in said if code]
        words = f"its last words are in {log_of(run_dir, 0)}"
        if failed:
            # torchrun makes 1 of every exit code, so it is not the run's.
            return LaunchStatus(
                status="failed", message=f"torchrun ended {', '.join(failed)}, without a result; {words}"
            )
        return LaunchStatus(status="lost", message=f"the agents ended without a result; {words}")

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        """See :func:`hostcore_hookspecs.launcher.cancel`.

        Each machine's keeper sends SIGINT to the ranks there, as from Ctrl-C, and kills what is left when the time is
        over.
        """
        folder, nodes = _found(handle)
        stop(folder, range(nodes), grace_seconds, patience_seconds=_FORCE_SECONDS)

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        """See :func:`hostcore_hookspecs.launcher.read_logs`: of all nodes.

        :param since: A byte offset for each node, separated by commas.
        :raises FatalError: If ``since`` is not that.
        """
        nodes = range(len(handle.details["hosts"]))
        return read_logs([log_of(handle.details["run_dir"], node) for node in nodes], since)

    @staticmethod
    def _prepare(ctx: LaunchContext, folder: LaunchFolder, agent: Agent) -> LaunchSpec:
        try:
            return folder.prepare(
                LaunchSpec(
                    command=list(ctx.command),
                    env=dict(ctx.env),
                    cwd=str(Path.cwd()),
                    earlier_result=earlier_result(ctx.run_dir, ctx.launch_id),
                    agent=agent,
                    grace_seconds=float(ctx.document.get("grace_seconds") or 25.0) + _STOP_SECONDS,
                )
            )
        except OSError as error:
            raise FatalError(
                f"cannot write the launch down: {error}", file=str(error.filename or ctx.run_dir)
            ) from error

    def _agent(self, ctx: LaunchContext, hosts: Sequence[str], *, rendezvous_id: str) -> Agent:
        settings = self._settings
        min_nodes = settings.min_nodes or len(hosts)
        restarts = settings.max_restarts
        if restarts is None:
            restarts = int(ctx.document.get("max_restarts") or 0)
            restarts = max(restarts, _ELASTIC_RESTARTS) if min_nodes < len(hosts) else restarts
        addresses = _addresses(hosts)
        return Agent(
            torchrun=[settings.torchrun]
            if settings.torchrun
            else [ctx.command[0], "-P", "-m", "torch.distributed.run"],
            rendezvous_id=rendezvous_id,
            min_nodes=min_nodes,
            nodes=len(hosts),
            ranks_per_node=ctx.job.resources.ranks_per_node,
            max_restarts=restarts,
            host=addresses[0] or "",
            port=settings.rendezvous_port,
            addresses=addresses,
            rendezvous=dict(settings.rendezvous),
        )

    def _require_programs(self, ctx: LaunchContext, hosts: Sequence[str]) -> None:
        for program, pointer in ((ctx.command[0], None), (self._settings.torchrun, "/launcher/torchrun")):
            if program and HERE in hosts and shutil.which(program) is None:
                raise FatalError(f"there is no program {program}", pointer=pointer, file=program)
        if any(host != HERE for host in hosts) and shutil.which("ssh") is None:
            raise FatalError(
                "there is no program ssh, which reaches the other machines",
                pointer="/launcher/hosts",
                hint="apt-get install openssh-client",
            )


def _found(handle: LaunchHandle) -> tuple[LaunchFolder, int]:
    return LaunchFolder.of(handle.details["run_dir"], handle.id), len(handle.details["hosts"])


def _addresses(hosts: Sequence[str]) -> list[str | None]:
    """Return each machine's address for the others; None: the address that it finds for itself."""
    if set(hosts) == {HERE}:
        return [_LOOPBACK] * len(hosts)
    return [None if host == HERE else host.rpartition("@")[2] for host in hosts]


def _counted(hosts: Sequence[str]) -> str:
    if set(hosts) == {HERE}:
        return "this machine" if len(hosts) == 1 else f"this machine, as {len(hosts)} nodes"
    return f"{len(hosts)} machines ({', '.join(hosts)})" if len(hosts) > 1 else hosts[0]
