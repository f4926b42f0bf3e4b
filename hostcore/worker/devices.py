"""Devices: what there is, and what the job gets. An explicit device never degrades silently."""

from collections.abc import Sequence

import torch

from hostcore_hookspecs.errors import HostcoreError


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
