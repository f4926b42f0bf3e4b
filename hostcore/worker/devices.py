"""Devices: what there is, what the job gets, and in which precision it computes. An explicit device never degrades."""

from collections.abc import Sequence
from typing import Final

import torch

from hostcore_hookspecs.errors import HostcoreError

DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class DeviceUnavailable(HostcoreError):
    """The job asks for a device that this machine does not have, or that does not work."""

    code = "device.unavailable"


def available_devices() -> tuple[str, ...]:
    """The devices of this machine, best first: ``cuda:0``, …, ``mps``, ``cpu``."""
    cuda = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count())) if torch.cuda.is_available() else ()
    mps = ("mps",) if torch.backends.mps.is_available() else ()
    return (*cuda, *mps, "cpu")


def name_of_device(device: torch.device, held: Sequence[str]) -> str:
    """What the job calls a device: ``cuda:3`` for this process's ``cuda:0``, if it sees no other.

    :param held: The names of those that this process sees; empty: they have the same names here.
    """
    return held[device.index or 0] if held and device.type == "cuda" else str(device)


def checked_device(
    name: str, available: tuple[str, ...], *, held: Sequence[str] = (), pointer: str = "/device"
) -> torch.device:
    """A device that is there and computes.

    :param name: As the job says it: ``cpu``, ``mps``, ``cuda`` (the first) or ``cuda:<index>``.
    :param held: See :func:`name_of_device`.
    :raises DeviceUnavailable: When there is no such device, or it cannot add two numbers.
    """
    found = "cuda:0" if name == "cuda" else name
    found = f"cuda:{list(held).index(found)}" if found in held else found
    if found not in available:
        hint = f"this machine has: {', '.join(available)}"
        if found.startswith("cuda") and torch.version.cuda is None and torch.version.hip is None:
            hint += "; the installed torch is a CPU build"
        raise DeviceUnavailable(f"there is no device {name!r} here", pointer=pointer, hint=hint)
    device = torch.device(found)
    try:
        torch.ones(1, device=device).add_(1)
    except RuntimeError as error:
        summary = str(error).partition("\n")[0]
        raise DeviceUnavailable(
            f"the device {name!r} does not work: {summary}",
            pointer=pointer,
            hint='set "device": "cpu" to run without it',
        ) from error
    return device


class PrecisionUnavailable(HostcoreError):
    """The device does not compute in the precision that the job asks for."""

    code = "precision.unavailable"


def check_precision(precision: str, device: torch.device) -> None:
    """Prove that a device computes in a precision.

    :raises PrecisionUnavailable: When it does not, or only emulates it.
    """
    if precision == "fp32":
        return
    hint = f'set "precision" to "fp32", or run on another device than {device}'
    if device.type == "cuda" and precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise PrecisionUnavailable(f"the device {device} has no bf16", pointer="/precision", hint=hint)
    try:
        with torch.autocast(device.type, dtype=DTYPES[precision]):
            square = torch.ones(8, 8, device=device, requires_grad=True)
            torch.autograd.grad((square @ square).sum(), square)
    except RuntimeError as error:
        summary = str(error).partition("\n")[0]
        raise PrecisionUnavailable(
            f"the device {device} does not compute in {precision}: {summary}", pointer="/precision", hint=hint
        ) from error


def make_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler | None:
    """What scales the loss in fp16, whose gradients would be too small otherwise; None for other precisions."""
    return torch.amp.GradScaler(device.type) if precision == "fp16" else None
