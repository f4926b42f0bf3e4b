"""Checking a job as ``hostcore run`` would, short of starting it: the workers' start-up, and no run directory."""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from hostcore.errors import Errors
from hostcore.job.data import with_brought
from hostcore.job.spec import JobSpec
from hostcore.plugins.errors import of_content
from hostcore.supervisor.devices import shared_device
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.workers.session import session_without_run
from hostcore.supervisor.workers.spawn import LocalRanks, Spawn, WorkerProcess
from hostcore_hookspecs.errors import HostcoreError


class CheckFailed(HostcoreError):
    """A worker died while it checked a job."""

    code = "worker.died"


def check_job(plan: RunPlan, *, timeout_seconds: float = math.inf) -> Mapping[str, Any]:
    """Have a worker for each rank check a job: import plugins, structure their settings, open the data, try the device.

    :return: Rank 0's findings: ``device``, ``total_steps``, ``num_rows``, …; the ``devices`` of all ranks; and the
        ``rows_left_out`` of each epoch.
    :raises Errors: Everything that is wrong with the job, from the first rank that finds anything.
    :raises CheckFailed: When a worker dies of it, or is not done in time.
    """
    spec = plan.spec
    ranks = 1 if spec.runs_elsewhere else spec.ranks
    spawn: Spawn = LocalRanks(ranks) if ranks == spec.ranks else _FirstRank(world_size=spec.ranks)
    start_from = plan.fetched_parent or spec.begins_from or ""
    due = time.monotonic() + timeout_seconds
    with session_without_run(
        plan,
        _checked_here(spec),
        spawn,
        ranks=ranks,
        start_from=start_from,
        only_check=True,
        checked_run_dir=str(plan.directory.path),
    ) as session:
        while not session.summaries:
            for _, kind, content in session.listen():
                if kind == "invalid":
                    raise Errors(of_content(content, spec.origins))
            for member in session.members:
                if member.summary is not None:
                    continue
                if member.exit is not None:
                    raise CheckFailed(
                        f"{member.name} {member.exit} while it checked the job", hint=member.tail() or None
                    )
                if time.monotonic() >= due:
                    raise CheckFailed(
                        f"{member.name} was not done checking the job after {timeout_seconds:g} seconds",
                        hint=member.tail()
                        or "look at what its plugins do when they are imported, and at where its data lies",
                    )
        summaries = session.summaries
        found, devices = summaries[0], [summary["device"] for summary in summaries]
    if error := shared_device(spec, devices):
        raise Errors([error])
    spec = with_brought(spec, [summary.get("brought", {}) for summary in summaries])
    return {**found, "devices": devices, "rows_left_out": spec.rows_left_out(found["num_rows"])}


@attrs.frozen(kw_only=True)
class _FirstRank:
    """Starts rank 0 alone of those that an engine will start. It plans for all of them, and meets none to check."""

    world_size: int

    def __call__(self, rank: int, contract: Path, output: Path) -> WorkerProcess:
        """See :class:`Spawn`."""
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(self.world_size)}
        return WorkerProcess(contract, output, {**LocalRanks(1).environment(rank), **ranks})


def _checked_here(spec: JobSpec) -> dict[str, Any]:
    """A job as far as it can be checked on this machine: of one that runs elsewhere, everything but its devices."""
    job = spec.to_json()
    if spec.runs_elsewhere:
        for key in ("device", "devices", "resources", "launcher"):
            job.pop(key, None)
    return job
