"""The launcher ``ray``: a job of a Ray cluster, with torchrun as its entry point for several ranks."""

import json
import os
import secrets
import shlex
import time
from pathlib import Path
from typing import Any, Final

from hostcore_builtin_plugins.run_result import earlier_result, result_of
from hostcore_engines.keeper.agent import Agent
from hostcore_engines.keeper.asking import stop
from hostcore_engines.keeper.folder import LaunchFolder, label
from hostcore_engines.keeper.following import read_logs
from hostcore_engines.keeper.launch_spec import LaunchSpec
from hostcore_engines.ray.jobs_api import JobsApi
from hostcore_engines.ray.settings import RaySettings, address_of, check_resources, check_settings
from hostcore_hookspecs import FatalError, LaunchContext, LaunchHandle, LaunchPlan, LaunchStatus, LogChunk, Secret

_KEEPER: Final = "hostcore_engines.keeper"
_DRIVER: Final = "hostcore_engines.ray.driver"
#: Ray's statuses of a job that is not over; every other one is an end.
_WAITING: Final = {"PENDING": "submitted", "RUNNING": "running"}
#: The place in a log that Ray gives; others are places in the file in the run directory.
_IN_RAYS: Final = "ray:"
_POLL_SECONDS: Final = 0.2
#: For keepers to end by force what does not stop, and for Ray to notice the end.
_FORCE_SECONDS: Final = 15.0
#: What a rank may take longer to stop than the run's own grace.
_STOP_SECONDS: Final = 10.0


class RayLauncher:
    """Submits one job for each launch, whose submission_id is made from the launch's id."""

    Settings = RaySettings

    def __init__(self, *, settings: RaySettings | None = None) -> None:
        self._settings = settings or RaySettings()
        check_settings(self._settings)

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """See :func:`hostcore_hookspecs.launcher.plan`."""
        check_resources(ctx)
        launch_id = ctx.launch_id or ctx.name or ctx.job.run_id
        folder = LaunchFolder.of(ctx.run_dir, launch_id)
        launch_spec = self._launch_spec(ctx, launch_id, earlier=None)
        resources = ctx.job.resources
        nodes = f"{resources.num_nodes} nodes" if resources.num_nodes > 1 else "one node"
        ranks = resources.ranks_per_node
        each = f"{ranks} ranks{' each' if resources.num_nodes > 1 else ''}" if ranks > 1 else "one rank"
        each = each if resources.num_nodes == 1 or ranks > 1 else "one rank each"
        started = launch_spec.command
        if launch_spec.agent is not None:
            host, port = launch_spec.agent.host or "HOST", launch_spec.agent.port or "PORT"
            started = launch_spec.agent.command(0, host=host, port=port, address=None, rank=launch_spec.command)
        return LaunchPlan(
            summary=f"a job of the Ray cluster at {address_of(self._settings)}, {nodes} with {each}",
            document=json.dumps(
                {**self._request(ctx, launch_id, folder), "starts": shlex.join(started)}, indent=2, ensure_ascii=False
            )
            + "\n",
        )

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        """See :func:`hostcore_hookspecs.launcher.launch`."""
        check_resources(ctx)
        launch_id = ctx.launch_id or secrets.token_hex(8)
        folder = LaunchFolder.of(ctx.run_dir, launch_id)
        api, submission_id = self._api(address_of(self._settings)), _submission_id(launch_id)
        known = api.info(submission_id) is not None
        try:
            launch_spec = folder.prepare(
                self._launch_spec(ctx, launch_id, earlier=earlier_result(ctx.run_dir, ctx.launch_id))
            )
        except OSError as error:
            raise FatalError(
                f"cannot write the launch down: {error}", file=str(error.filename or ctx.run_dir)
            ) from error
        if known or not api.submit(self._request(ctx, launch_id, folder)):
            ctx.log(f"Ray has the job {submission_id} already")
        else:
            ctx.log(f"Ray has taken the job {submission_id}")
        return LaunchHandle(
            launcher="ray",
            id=submission_id,
            details={
                "address": address_of(self._settings),
                "run_dir": ctx.run_dir,
                "folder": str(folder.path),
                "nodes": ctx.job.resources.num_nodes,
                "agents": launch_spec.agent is not None,
                "earlier_result": launch_spec.earlier_result,
            },
        )

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        """See :func:`hostcore_hookspecs.launcher.poll`."""
        details = handle.details
        job = self._api(details["address"]).info(handle.id)
        said = str((job or {}).get("status"))
        message = str((job or {}).get("message") or "")
        if said in _WAITING:
            return LaunchStatus(status=_WAITING[said], message=message)
        result = result_of(details["run_dir"], details["earlier_result"])
        if result is not None:
            return result
        if job is None:
            return LaunchStatus(
                status="lost", message=f"Ray knows no job {handle.id}: its head may have been restarted"
            )
        if said == "STOPPED" or LaunchFolder(Path(details["folder"])).cancelled() is not None:
            return LaunchStatus(status="cancelled", message="it was stopped, and has left no result")
        if said == "FAILED":
            # torchrun makes 1 of every exit code, so it is not the run's.
            code = None if details["agents"] else job.get("driver_exit_code")
            return LaunchStatus(status="failed", message=message, exit_code=code)
        return LaunchStatus(status="lost", message=f"Ray says {said}, and the run has left no result")

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        """See :func:`hostcore_hookspecs.launcher.cancel`.

        The keepers send SIGINT to the ranks, as from Ctrl-C. Ray's own way to stop a job is the force behind it: it
        sends SIGTERM, and SIGKILL 3 seconds later unless the cluster is configured otherwise.
        """
        api = self._api(handle.details["address"])
        if not _goes_on(api, handle.id):
            return
        folder, nodes = LaunchFolder(Path(handle.details["folder"])), handle.details["nodes"]
        folder.cancel(grace_seconds)
        if any(folder.claimed(node) is not None for node in range(nodes)):
            stop(folder, range(nodes), grace_seconds, patience_seconds=_FORCE_SECONDS)
            if _has_ended(api, handle.id, _FORCE_SECONDS):
                return
        api.stop(handle.id)
        _has_ended(api, handle.id, _FORCE_SECONDS)

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        """See :func:`hostcore_hookspecs.launcher.read_logs`: of all nodes.

        It is read from the run directory, since Ray's dashboard always gives all of it, and from Ray while there is
        nothing.

        :param since: A byte offset for each node, separated by commas; behind ``ray:`` one in characters.
        :raises FatalError: If ``since`` is none.
        """
        files = [_log(handle.details["run_dir"], node) for node in range(handle.details["nodes"])]
        if (since and not since.startswith(_IN_RAYS)) or (not since and any(file.exists() for file in files)):
            return read_logs(files, since)
        offset = since.removeprefix(_IN_RAYS) or "0"
        if not (offset.isascii() and offset.isdecimal()):
            raise FatalError(f"{since!r} is no place in the log", hint="pass what the chunk before gave as 'next'")
        text = (self._api(handle.details["address"]).logs(handle.id) or "")[int(offset) :]
        return LogChunk(text=text, next=f"{_IN_RAYS}{int(offset) + len(text)}" if text else since)

    def _api(self, address: str) -> JobsApi:
        settings = self._settings
        ca_file = str(settings.ca_file) if settings.ca_file else None
        timeout = settings.timeout_seconds
        return JobsApi(address, token=token_for(settings.token), timeout_seconds=timeout, ca_file=ca_file)

    def _launch_spec(self, ctx: LaunchContext, launch_id: str, *, earlier: int | None) -> LaunchSpec:
        resources, settings = ctx.job.resources, self._settings
        python = settings.python or ctx.command[0]
        agent = None
        if resources.num_nodes * resources.ranks_per_node > 1:
            restarts = settings.max_restarts
            agent = Agent(
                torchrun=[python, "-P", "-m", "torch.distributed.run"],
                rendezvous_id=label(launch_id),
                min_nodes=resources.num_nodes,
                nodes=resources.num_nodes,
                ranks_per_node=resources.ranks_per_node,
                max_restarts=int(ctx.document.get("max_restarts") or 0) if restarts is None else restarts,
                host="127.0.0.1" if resources.num_nodes == 1 else "",
                addresses=["127.0.0.1"] if resources.num_nodes == 1 else [],
            )
        return LaunchSpec(
            command=[python if settings.python else ctx.command[0], *ctx.command[1:]],
            env=dict(ctx.env),
            cwd=str(Path.cwd()),
            earlier_result=earlier,
            agent=agent,
            grace_seconds=float(ctx.document.get("grace_seconds") or 25.0) + _STOP_SECONDS,
        )

    def _request(self, ctx: LaunchContext, launch_id: str, folder: LaunchFolder) -> dict[str, Any]:
        """Return the request for Ray, without the job's variables: Ray shows a job to all its users."""
        resources, python = ctx.job.resources, self._settings.python or ctx.command[0]
        log = str(_log(ctx.run_dir, 0))
        each = _of_each(resources)
        if resources.num_nodes > 1:
            command = [python, "-P", "-m", _DRIVER, str(folder.path), str(resources.num_nodes), json.dumps(each), log]
        else:
            command = [python, "-P", "-m", _KEEPER, str(folder.path), "0", "--tee", log]
        own = {f"entrypoint_{name}": value for name, value in each.items()} if resources.num_nodes == 1 else {}
        return {
            # A line for a shell, which the program replaces.
            "entrypoint": f"exec {shlex.join(command)}",
            "submission_id": _submission_id(launch_id),
            "metadata": {"run_id": ctx.job.run_id, "launch_id": launch_id},
            **({"runtime_env": dict(self._settings.runtime_env)} if self._settings.runtime_env else {}),
            **own,
        }


def _of_each(resources: Any) -> dict[str, float]:
    """Return the resources of each node, by the names of Ray's entry point."""
    memory = resources.memory_per_node_gb
    asked = {
        "num_cpus": resources.cpus_per_node,
        "num_gpus": resources.gpus_per_node or None,
        "memory": None if memory is None else round(memory * 10**9),
    }
    return {name: value for name, value in asked.items() if value is not None}


def _submission_id(launch_id: str) -> str:
    return f"hostcore-{label(launch_id)}"


def _log(run_dir: str, node: int) -> Path:
    return Path(run_dir, "logs", f"ray.{node}.log")


def _goes_on(api: JobsApi, submission_id: str) -> bool:
    job = api.info(submission_id)
    return job is not None and job.get("status") in _WAITING


def _has_ended(api: JobsApi, submission_id: str, seconds: float) -> bool:
    due = time.monotonic() + seconds
    while _goes_on(api, submission_id):
        if time.monotonic() > due:
            return False
        time.sleep(_POLL_SECONDS)
    return True


_MODE: Final = "RAY_AUTH_MODE"
_TOKEN: Final = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable
_TOKEN_PATH: Final = "RAY_AUTH_TOKEN_PATH"  # noqa: S105
_DEFAULT_PATH: Final = Path(".ray", "auth_token")


def token_for(given: Secret | None) -> str | None:
    """The token to send: the one given, or what Ray would take from the environment; None: none.

    :raises FatalError: When it cannot be read, or cannot be sent.
    """
    if given is not None:
        token = given.value.strip()
    elif os.environ.get(_MODE, "").lower() == "disabled":
        return None
    else:
        token = os.environ.get(_TOKEN, "").strip() or _from_file()
    if not token.isascii() or not token.isprintable():
        raise FatalError("the token has characters that no token of Ray's has", pointer="/launcher/token")
    return token or None


def _from_file() -> str:
    named = os.environ.get(_TOKEN_PATH)
    path = Path(os.path.expanduser(named or f"~/{_DEFAULT_PATH}"))  # noqa: PTH111 - there may be no home
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        if named:
            raise FatalError(f"{_TOKEN_PATH} names a file that does not exist", file=named) from None
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise FatalError(f"cannot read the token: {error}", file=str(path)) from error
