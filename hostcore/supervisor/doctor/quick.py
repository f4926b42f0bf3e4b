"""What ``hostcore doctor`` can tell in milliseconds, without a process: looked at before each attempt of a run."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from hostcore.checkpoints.find import committed, load_record
from hostcore.supervisor.doctor.disk import space_finding
from hostcore.supervisor.doctor.disk_probe import space_of
from hostcore.supervisor.doctor.finding import Finding, size
from hostcore.supervisor.doctor.settings import unknown_variables
from hostcore.supervisor.doctor.system import (
    SHARED,
    WORKER_BYTES,
    available_memory,
    files_finding,
    shared_finding,
)
from hostcore.supervisor.plan import RunPlan
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.events import Warning


class NoSpace(HostcoreError):
    """The disk has no room for what the run must write."""

    code = "disk.space"


def quick_warnings(plan: RunPlan) -> Iterator[Warning]:
    """What may hurt a run that starts now; nothing if all is well.

    :raises NoSpace: When the disk cannot take the next checkpoint, and the job requires its checkpoints.
    """
    gpus = len(plan.devices.names)
    found = [
        files_finding(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        *([shared_finding(os.statvfs(SHARED))] if gpus > 1 and SHARED.is_dir() else []),
        *_variables(),
        *_memory(plan.spec.ranks if plan.spec.world_size is None else 1),
        *_space(plan),
    ]
    for one in found:
        if one.status != "ok":
            yield Warning(code=one.name, message=f"{one.finding}; {one.hint}" if one.hint else one.finding)


def _variables() -> Iterator[Finding]:
    for name, near in unknown_variables(os.environ):
        if near:  # anything else may be meant for something around hostcore
            finding = f"hostcore does not know {name}"
            yield Finding(name="environment", status="warning", finding=finding, hint=f"did you mean {near}?")


def _memory(ranks: int) -> Iterator[Finding]:
    available = available_memory()
    needed = ranks * WORKER_BYTES
    if available is not None and available < needed:
        workers = "a worker takes" if ranks == 1 else f"{ranks} workers take"
        finding = f"{workers} about {size(needed)} before there is a model, and {size(available)} are available"
        yield Finding(name="system.memory", status="warning", finding=finding, hint="end other processes")


def _space(plan: RunPlan) -> Iterator[Finding]:
    folder = plan.checkpoints_dir
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    space = space_of(nearest)
    needed = _size_of_newest(plan)
    if space["total_bytes"] and needed > space["free_bytes"]:
        finding = f"the next checkpoint needs about {size(needed)}, and {size(space['free_bytes'])} are free"
        hint = "make room, or give the run a smaller keep_checkpoints"
        if plan.spec.require_checkpoints:
            raise NoSpace(finding, pointer="/require_checkpoints", file=str(nearest), hint=hint)
        yield Finding(name="disk.space", status="warning", finding=finding, hint=hint)
    elif space["total_bytes"]:  # file systems of the kernel's own have none
        room = space_finding(space)
        if room.status == "failed":  # little room is for doctor to tell, not for every run
            yield room


def _size_of_newest(plan: RunPlan) -> int:
    """Of the checkpoint that the run goes on from, which the next one resembles; 0: it is not known yet."""
    if records := committed(plan.checkpoints_dir):
        return records[-1].size
    parent = plan.fetched_parent or plan.spec.begins_from
    return load_record(Path(parent)).record.size if parent else 0
