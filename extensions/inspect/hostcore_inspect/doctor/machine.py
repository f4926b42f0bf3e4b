"""All checks of a machine, in the order of their output: quick ones first."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from hostcore.plugins.installed import discover
from hostcore.probe import Answer, Probe
from hostcore_inspect.doctor.compute import device_finding, held_findings, machine_findings
from hostcore_inspect.doctor.disk import disk_findings
from hostcore_inspect.doctor.finding import DoctorFinding
from hostcore_inspect.doctor.installed import plugins_finding, python_finding, requirements_finding
from hostcore_inspect.doctor.ranks import adding_up
from hostcore_inspect.doctor.settings import settings_finding
from hostcore_inspect.doctor.system import system_findings

#: Ranks on the CPU: the fewest that have something to add up.
_CPU_RANKS: Final = 2


def examine_machine(folder: Path, *, timeout_seconds: float) -> Iterator[DoctorFinding]:
    """Check everything that jobs need. Ends in time, whatever a driver or a file server does.

    :param folder: Of all runs. It need not be there, and is not made.
    :param timeout_seconds: For each of what may hang: the disk, torch, the devices together, the ranks together.
    """
    with ExitStack() as stack:
        disk = stack.enter_context(Probe("hostcore_inspect.doctor.disk_probe", [str(folder)]))
        machine = stack.enter_context(Probe("hostcore_inspect.doctor.machine_probe"))
        yield python_finding()
        yield requirements_finding()
        yield plugins_finding(discover())
        yield settings_finding(os.environ)
        yield from system_findings()
        yield from disk_findings(disk.answer(timeout_seconds), folder)
        answer = machine.answer(timeout_seconds)
        yield from machine_findings(answer)
        yield from held_findings()
        yield from _together(answer, timeout_seconds)


def _together(machine: Answer, timeout_seconds: float) -> Iterator[DoctorFinding]:
    """The accelerators, then ranks on them and on the CPU; nothing of it if torch does not work."""
    torch, found = machine.last("torch"), machine.last("accelerators") or ()
    with ExitStack() as stack:
        probes = [
            (one, stack.enter_context(Probe("hostcore_inspect.doctor.device_probe", [one["name"]]))) for one in found
        ]
        for one, probe in probes:
            yield device_finding(one, probe.answer(timeout_seconds))
    if torch is None or not torch["distributed"]:
        return
    with adding_up("gloo", _CPU_RANKS) as ranks:
        yield ranks.finding(timeout_seconds)
    gpus = sum(one["name"].startswith("cuda") for one in found)
    if gpus > 1:
        with adding_up("nccl", gpus) as ranks:
            yield ranks.finding(timeout_seconds)
