"""Precision: what ``ctx.autocast`` and ``ctx.scaler`` work in, and whether the device can."""

from typing import Final

import torch

from hostcore_hookspecs.errors import HostcoreError

DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


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
