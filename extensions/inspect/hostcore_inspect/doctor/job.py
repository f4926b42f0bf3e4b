"""Checks of one job on an examined machine."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore.errors import all_errors
from hostcore.supervisor.check import check_job
from hostcore.supervisor.opening import examine_run
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.quick_checks import WORKER_BYTES, available_memory, size
from hostcore.supervisor.remote.adopting import find_in_mirror
from hostcore_hookspecs.errors import HostcoreError
from hostcore_inspect.doctor.finding import DoctorFinding

#: Errors of a job that another machine, or this one in another state, would not have.
_OF_THE_MACHINE: Final = frozenset(
    {"device.unavailable", "precision.unavailable", "run.unwritable", "worker.died", "worker.start"}
)

Check = Callable[..., Mapping[str, Any]]


@attrs.frozen(kw_only=True)
class JobReport:
    """Result of the checks of a job."""

    findings: Sequence[DoctorFinding]
    #: The devices that it would run on, if known: ``("cuda:0", "cuda:1")``.
    devices: Sequence[str] = ()
    #: The errors of ``hostcore validate``.
    errors: Sequence[HostcoreError] = ()

    @property
    def invalid(self) -> bool:
        """Return whether it could run nowhere."""
        return any(error.code not in _OF_THE_MACHINE for error in self.errors)


def examine_job(
    plan: RunPlan, machine: Sequence[DoctorFinding], *, timeout_seconds: float, check: Check = check_job
) -> JobReport:
    """Check a job as ``hostcore validate`` does, and whether the machine has what it requests.

    :param machine: The findings of the machine.
    :param timeout_seconds: For the worker that checks the job.
    """
    blocking = [one.name for one in machine if one.hung or (one.name == "torch" and one.status == "failed")]
    if blocking:
        # A worker would hang in the same driver, and this process in the same file server.
        finding = f"not checked, since {', '.join(blocking)} failed"
        return JobReport(findings=[DoctorFinding(name="job", status="failed", finding=finding, hint="mend that first")])
    found = {one.name: one for one in machine}
    errors, checked = _validated(plan, timeout_seconds, check)
    devices = _devices(plan, checked)
    findings = [_job(plan, errors, checked)]
    if devices:
        findings.append(_device(devices, plan.spec.precision, found))
    if len(devices) > 1:
        findings.append(_ranks(devices, found))
    if checked:
        findings.append(_memory(checked["feed_bytes"], plan.spec.ranks, available_memory()))
    return JobReport(findings=findings, devices=devices, errors=errors)


def may_be_needless(finding: DoctorFinding) -> bool:
    """Return whether a job may not need the examined part."""
    return finding.name.startswith(("accelerators", "device.", "ranks."))


def for_job(machine: Sequence[DoctorFinding], report: JobReport) -> list[DoctorFinding]:
    """Judge the findings of a machine for a job: failures of parts that it does not need are warnings."""
    needed = {f"device.{device}" for device in report.devices}
    needed |= {f"ranks.{backend}" for backend in _backends(report.devices)}
    if not report.devices:  # it is not known what it needs
        return list(machine)
    return [
        attrs.evolve(one, status="warning", hint=f"this job does not need it; {one.hint}")
        if one.status == "failed" and may_be_needless(one) and one.name not in needed
        else one
        for one in machine
    ]


def _validated(
    plan: RunPlan, timeout_seconds: float, check: Check
) -> tuple[Sequence[HostcoreError], Mapping[str, Any]]:
    try:
        if not find_in_mirror(plan):
            examine_run(plan)
        return (), check(plan, timeout_seconds=timeout_seconds)
    except HostcoreError as error:
        return all_errors(error), {}


def _devices(plan: RunPlan, checked: Mapping[str, Any]) -> list[str]:
    """Return the device of each rank; empty if the worker chooses it, and could not."""
    asked = plan.spec.requested_devices
    if "auto" in asked:
        return list(checked.get("devices", ()))
    return ["cuda:0" if name == "cuda" else name for name in asked]


def _job(plan: RunPlan, errors: Sequence[HostcoreError], checked: Mapping[str, Any]) -> DoctorFinding:
    name = plan.spec.run_id or plan.spec.trainer
    if not errors:
        finding = f"{name} is valid: {checked['total_steps']:,} steps on {checked['device']}, {plan.spec.precision}"
        return DoctorFinding(
            name="job", status="ok", finding=finding, details={"run_id": plan.spec.run_id, "errors": []}
        )
    first, more = errors[0], f"; and {len(errors) - 1} more" if len(errors) > 1 else ""
    return DoctorFinding(
        name="job",
        status="failed",
        finding=f"{name} cannot run: {first.message}{more}",
        hint=first.hint,
        details={"run_id": plan.spec.run_id, "errors": [error.as_dict() for error in errors]},
    )


def _device(devices: Sequence[str], precision: str, found: Mapping[str, DoctorFinding]) -> DoctorFinding:
    problems = []
    for name, count in Counter(devices).items():
        device = found.get(f"device.{name}")
        if device is None:
            problems.append(f"there is no {name}")
        elif device.status == "failed":
            problems.append(f"{name} does not work")
        elif device.products.get(precision) not in ("right", "rounded"):
            problems.append(f"{name} has no {precision}")
        if count > 1 and name != "cpu":
            problems.append(f"{count} ranks cannot share {name}")
    has = ", ".join(sorted(name.removeprefix("device.") for name in found if name.startswith("device.")))
    return DoctorFinding(
        name="job.device",
        status="failed" if problems else "ok",
        finding="; ".join(problems) or f"{', '.join(devices)} in {precision}",
        hint=f"this machine has: {has}" if problems else None,
        details={"devices": list(devices), "precision": precision},
    )


def _ranks(devices: Sequence[str], found: Mapping[str, DoctorFinding]) -> DoctorFinding:
    backends = _backends(devices)
    # Without a finding there is no such device, which is reported elsewhere.
    broken = [name for name in backends if f"ranks.{name}" in found and found[f"ranks.{name}"].status == "failed"]
    return DoctorFinding(
        name="job.ranks",
        status="failed" if broken else "ok",
        finding=f"{len(devices)} ranks with {' and '.join(backends)}"
        + (f": {', '.join(broken)} failed" * bool(broken)),
        hint="see above" if broken else None,
        details={"world_size": len(devices), "backends": list(backends)},
    )


def _backends(devices: Sequence[str]) -> Sequence[str]:
    """Return the backends of several ranks on these devices; the host itself always uses gloo."""
    if len(devices) < 2:
        return ()
    return ("gloo", "nccl") if any(name.startswith("cuda") for name in devices) else ("gloo",)


def _memory(feed_bytes: int, ranks: int, available: int) -> DoctorFinding:
    needed = ranks * (WORKER_BYTES + feed_bytes)
    short = needed > available
    data = f"{size(feed_bytes)} of it for the data of each rank"
    return DoctorFinding(
        name="job.memory",
        status="failed" if short else "ok",
        finding=f"about {size(needed)} beside the model, {data}; {size(available)} are available",
        hint='end other processes, or give the dataset a smaller "shuffle_window" or "window_bytes"' if short else None,
        details={"needed_bytes": needed, "available_bytes": available, "feed_bytes": feed_bytes},
    )
