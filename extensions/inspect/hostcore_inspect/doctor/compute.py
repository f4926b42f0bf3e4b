"""Findings about torch, the CPU and the accelerators, from the answers of their probes."""

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hostcore.probe import Answer
from hostcore.supervisor.device_leases import DeviceLeasesUnusable, device_holders
from hostcore.supervisor.quick_checks import size
from hostcore_inspect.doctor.finding import DoctorFinding, Status

#: Of a device's memory; below it another process uses the device.
_FREE_SHARE: Final = 0.5
#: Variables of the accelerators that a process may see; empty or -1: none.
_HIDING: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
#: Of the end of the standard error of a probe that failed.
_OUTPUT_LINES: Final = 10


def machine_findings(machine: Answer) -> Iterator[DoctorFinding]:
    """Judge the answer of the probe, up to its end."""
    torch = machine.last("torch")
    if torch is None:
        yield _broken("torch", machine, f"torch cannot be used: {machine.trouble}", _reinstall(machine))
        return
    several = "" if torch["distributed"] else "; built without torch.distributed: one rank only"
    yield DoctorFinding(
        name="torch",
        status="ok" if torch["distributed"] else "warning",
        finding=f"{torch['version']}, {torch['build']} build, {torch['threads']} threads{several}",
        hint=None if torch["distributed"] else "install a torch with torch.distributed for jobs of several ranks",
        details={**torch, "file": machine.last("torch_file")},
    )
    if machine.last("driver") is None:
        yield _broken("device.cpu", machine, f"the CPU does not compute: {machine.trouble}", _reinstall(machine))
        return
    yield device_finding({"name": "cpu"}, machine)
    yield _accelerators(machine, torch)


def _accelerators(machine: Answer, torch: Mapping[str, Any]) -> DoctorFinding:
    driver, found, reason = machine.last("driver"), machine.last("accelerators"), machine.last("reason")
    details = {"driver": driver, "devices": found or [], "reason": reason}
    version = f", driver {driver['version']}" if driver["version"] else ""
    seen = ", ".join(driver["devices"])
    if found is None:
        return _broken(
            "accelerators",
            machine,
            f"the driver does not work{version}: {machine.trouble}",
            "see whether nvidia-smi (or rocm-smi) answers; restart the driver or the machine; "
            "CUDA_VISIBLE_DEVICES= runs jobs without it",
        )
    if found:
        models = ", ".join(f"{one['name']} {one['model']}" for one in found)
        return DoctorFinding(name="accelerators", status="ok", finding=f"{models}{version}", details=details)
    if not driver["devices"]:
        return DoctorFinding(name="accelerators", status="ok", finding="none: jobs run on the CPU", details=details)
    if hiding := [f"{name}={os.environ[name]}" for name in _HIDING if os.environ.get(name) in ("", "-1")]:
        hidden = f"{seen} is hidden by {', '.join(hiding)}: jobs run on the CPU"
        return DoctorFinding(name="accelerators", status="ok", finding=hidden, details=details)
    if torch["build"] == "CPU":
        return DoctorFinding(
            name="accelerators",
            status="warning",
            finding=f"there is {seen}, but the installed torch is a CPU build",
            hint="install the build of torch for it: https://pytorch.org/get-started/locally",
            details=details,
        )
    return DoctorFinding(
        name="accelerators",
        status="failed",
        finding=f"there is {seen}{version}, but torch cannot use it: {reason or 'no device is visible'}",
        hint=f"install a driver that is new enough for {torch['build']}, or a torch that is old enough for the driver",
        details=details,
    )


def held_findings() -> Iterator[DoctorFinding]:
    """List the runs that hold the GPUs; nothing without GPUs."""
    try:
        held = device_holders()
    except DeviceLeasesUnusable as error:
        finding = f"{error.message} ({error.file})"
        yield DoctorFinding(name="accelerators.held", status="failed", finding=finding, hint=error.hint)
        return
    if held:
        holders = ", ".join(f"{name} by {holder}" for name, holder in held.items() if holder)
        details = {name: holder and holder.run_id for name, holder in held.items()}
        yield DoctorFinding(
            name="accelerators.held", status="ok", finding=holders or "none, by any run", details=details
        )


def device_finding(device: Mapping[str, Any], answer: Answer) -> DoctorFinding:
    """Judge the products of a device.

    :param device: Its ``name``; ``model``, ``capability`` of an accelerator.
    """
    name, products = device["name"], {one["precision"]: one for one in answer.all("product")}
    memory = answer.last("memory") or {}
    details = {**device, **memory, "products": products}
    statuses = {precision: one["status"] for precision, one in products.items()}
    wrong = [precision for precision, status in statuses.items() if status == "wrong"]
    if wrong:
        return DoctorFinding(
            name=f"device.{name}",
            status="failed",
            finding=f"wrong results in {', '.join(wrong)}: {_amiss(products[wrong[0]])}",
            hint="the hardware, its driver or the build of torch is broken: do not train on this device",
            details=details,
            products=statuses,
        )
    if answer.trouble and name != "cpu":
        finding = f"it does not compute: {answer.trouble}"
        remedy = f"see whether others hold {name} (nvidia-smi); leave it out with CUDA_VISIBLE_DEVICES, or replace it"
        return _broken(f"device.{name}", answer, finding, remedy, details)
    finding = "; ".join(_described(precision, one) for precision, one in products.items())
    status: Status = "ok"
    hint = None
    if memory:
        finding = f"{size(memory['free_bytes'])} of {size(memory['total_bytes'])} free; {finding}"
        if memory["free_bytes"] < _FREE_SHARE * memory["total_bytes"]:
            status, hint = "warning", "another process uses its memory; nvidia-smi shows which"
    if "rounded" in statuses.values():
        status = "warning"
        hint = "fp32 is rounded to TF32: unset NVIDIA_TF32_OVERRIDE and TORCH_ALLOW_TF32_CUBLAS_OVERRIDE for full fp32"
    return DoctorFinding(
        name=f"device.{name}", status=status, finding=finding, hint=hint, details=details, products=statuses
    )


def _described(precision: str, product: Mapping[str, Any]) -> str:
    if product["status"] == "absent":
        return f"no {precision}"
    return f"{precision} {product['tflops']:.3g} TFLOP/s" if product["tflops"] else f"{precision} right"


def _amiss(product: Mapping[str, Any]) -> str:
    if product["error"] is None:
        return "a product is not finite"
    return f"a product is off by {product['error']:.2g} of a typical element, and {product['tolerance']:g} is rounding"


def _broken(
    name: str, answer: Answer, finding: str, hint: str, details: Mapping[str, Any] | None = None
) -> DoctorFinding:
    output = answer.output.splitlines()[-_OUTPUT_LINES:]
    details = {**(details or {}), "output": output}
    return DoctorFinding(name=name, status="failed", finding=finding, hint=hint, details=details, hung=answer.hung)


def _reinstall(machine: Answer) -> str:
    file = machine.last("torch_file")
    if machine.hung:
        return f"see whether {file or sys.prefix} is on a file server that is slow; --timeout waits longer"
    where = f" (it is imported from {file})" if file else ""
    return f"reinstall torch{where}: python -m pip install --force-reinstall torch"
