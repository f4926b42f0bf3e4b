"""Matrix products of a device, compared with the CPU's in double precision, and timed."""

import time
from collections.abc import Mapping
from typing import Any, Final

import torch

from hostcore.probe import Say
from hostcore.worker.devices import DTYPES, PrecisionUnavailable, check_precision, dtype_of

#: The largest error of an element of a product of normally distributed n by n matrices, divided by √n, the size of a
#: typical element. Rounding alone gives about 2e-6, 2e-2 and 2e-3; a wrong element about 1.
TOLERANCES: Final[Mapping[str, float]] = {"fp32": 1e-4, "bf16": 0.1, "fp16": 0.02}
#: What fp32 is off by at most if its factors were rounded to TF32, which has 10 bits.
TF32_TOLERANCE: Final = 1e-2

#: Rows and columns. CPUs have fp16 without hardware for it, at a thousandth of the speed.
_CPU_ROWS: Final = 256
_ROWS: Final = 1024
_TIMED_CPU_ROWS: Final[Mapping[str, int]] = {"fp32": 1024, "bf16": 256, "fp16": 256}
_TIMED_ROWS: Final = 4096
_TIMED_SECONDS: Final = 0.05


def check_products(device: torch.device, say: Say) -> None:
    """Report for each precision whether the device computes in it, its error and its speed."""
    for precision in DTYPES:
        say(doing=f"multiplying in {precision} on {device}")
        try:
            check_precision(precision, str(device))
        except PrecisionUnavailable as error:
            say(product={"precision": precision, "status": "absent", "reason": error.message})
            continue
        say(product={"precision": precision, **_product(precision, device)})


def _product(precision: str, device: torch.device) -> dict[str, Any]:
    rows = _CPU_ROWS if device.type == "cpu" else _ROWS
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(rows, rows, generator=generator).to(dtype_of(precision)) for _ in range(2))
    expected = a.double() @ b.double()
    found = (a.to(device) @ b.to(device)).cpu().double()
    finite = bool(torch.isfinite(found).all())
    error = (found - expected).abs().max().item() / rows**0.5 if finite else None
    right = error is not None and error <= TOLERANCES[precision]
    rounded = precision == "fp32" and error is not None and error <= TF32_TOLERANCE
    status = "right" if right else "rounded" if rounded else "wrong"
    return {
        "status": status,
        "error": error,
        "tolerance": TOLERANCES[precision],
        "tflops": _tflops(precision, device) if status != "wrong" else None,
    }


def _tflops(precision: str, device: torch.device) -> float | None:
    """10¹² operations a second, roughly; None if there is no memory for it."""
    rows = _TIMED_CPU_ROWS[precision] if device.type == "cpu" else _TIMED_ROWS
    try:
        a = torch.ones(rows, rows, dtype=dtype_of(precision), device=device)
        _seconds(a, 1)  # the first one chooses a kernel
        times, seconds = 1, 0.0
        while (seconds := _seconds(a, times)) < _TIMED_SECONDS and times < 1 << 12:
            times *= 4
    except torch.OutOfMemoryError:
        return None
    return 2 * rows**3 * times / seconds / 1e12


def _seconds(a: torch.Tensor, times: int) -> float:
    _synchronize(a.device)
    started = time.perf_counter()
    for _ in range(times):
        a @ a
    _synchronize(a.device)
    return time.perf_counter() - started


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
