"""Devices: what there is, what the job gets, and in which precision it computes. An explicit device never degrades.

A job that is only checked may have no other need of torch, which takes seconds to import. So it is imported here when
there is no other way to know: what the installed torch was built for is read from one of its files.
"""

import functools
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Final

from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    import torch

#: What torch calls the precisions.
DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@functools.cache
def torch_version() -> ModuleType | None:
    """Torch's module ``version``, alone; None if it is not to be found, as where torch is not installed."""
    found = importlib.util.find_spec("torch")
    for folder in (found.submodule_search_locations if found else None) or ():
        spec = importlib.util.spec_from_file_location("hostcore_torch_version", f"{folder}/version.py")
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except (OSError, ImportError):
                return None
            return module
    return None


def is_for_cpu_alone() -> bool:
    """Return whether the installed torch has nothing but the CPU to compute on. False also where that is not known."""
    version = torch_version()
    if version is None or sys.platform == "darwin":  # whose GPU each build can use
        return False
    return all(getattr(version, name, "unknown") is None for name in ("cuda", "hip", "xpu"))


class DeviceUnavailable(HostcoreError):
    """The job asks for a device that this machine does not have, or that does not work."""

    code = "device.unavailable"


def available_devices() -> tuple[str, ...]:
    """The devices of this machine, best first: ``cuda:0``, …, ``mps``, ``cpu``."""
    if "torch" not in sys.modules and is_for_cpu_alone():
        return ("cpu",)
    import torch

    cuda = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count())) if torch.cuda.is_available() else ()
    mps = ("mps",) if torch.backends.mps.is_available() else ()
    return (*cuda, *mps, "cpu")


def dtype_of(precision: str) -> "torch.dtype":
    """The type of numbers of a precision."""
    import torch

    dtype: torch.dtype = getattr(torch, DTYPES[precision])
    return dtype


def name_of_device(device: str, held: Sequence[str]) -> str:
    """Return the job's name of a device: ``cuda:3`` for this process's ``cuda:0``, if it sees no other.

    :param held: The names of those that this process sees; empty: they have the same names here.
    """
    kind, _, index = device.partition(":")
    return held[int(index or 0)] if held and kind == "cuda" else device


def checked_device(name: str, available: tuple[str, ...], *, held: Sequence[str] = (), pointer: str = "/device") -> str:
    """A device that is there and computes, as torch calls it. That the CPU computes is taken for granted.

    :param name: As in the job: ``cpu``, ``mps``, ``cuda`` (the first) or ``cuda:<index>``.
    :param held: See :func:`name_of_device`.
    :raises DeviceUnavailable: When there is no such device, or it cannot add two numbers.
    """
    found = "cuda:0" if name == "cuda" else name
    found = f"cuda:{list(held).index(found)}" if found in held else found
    if found not in available:
        hint = f"this machine has: {', '.join(available)}"
        import torch

        if found.startswith("cuda") and torch.version.cuda is None and torch.version.hip is None:
            hint += "; the installed torch is a CPU build"
        raise DeviceUnavailable(f"there is no device {name!r} here", pointer=pointer, hint=hint)
    if found == "cpu":
        return found
    import torch

    try:
        torch.ones(1, device=found).add_(1)
    except RuntimeError as error:
        summary = str(error).partition("\n")[0]
        raise DeviceUnavailable(
            f"the device {name!r} does not work: {summary}",
            pointer=pointer,
            hint='set "device": "cpu" to run without it',
        ) from error
    return found


class PrecisionUnavailable(HostcoreError):
    """The device does not compute in the precision that the job asks for."""

    code = "precision.unavailable"


def check_precision(precision: str, device: str) -> None:
    """Prove that a device computes in a precision.

    :raises PrecisionUnavailable: When it does not, or only emulates it.
    """
    if precision == "fp32":
        return
    hint = f'set "precision" to "fp32", or run on another device than {device}'
    import torch

    kind = torch.device(device).type
    if kind == "cuda" and precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise PrecisionUnavailable(f"the device {device} has no bf16", pointer="/precision", hint=hint)
    try:
        with torch.autocast(kind, dtype=dtype_of(precision)):
            square = torch.ones(8, 8, device=device, requires_grad=True)
            torch.autograd.grad((square @ square).sum(), square)
    except RuntimeError as error:
        summary = str(error).partition("\n")[0]
        raise PrecisionUnavailable(
            f"the device {device} does not compute in {precision}: {summary}", pointer="/precision", hint=hint
        ) from error


def make_scaler(precision: str, device: "torch.device") -> "torch.amp.GradScaler | None":
    """Create the scaler of the loss in fp16, whose gradients are too small without; None for other precisions."""
    import torch

    return torch.amp.GradScaler(device.type) if precision == "fp16" else None
