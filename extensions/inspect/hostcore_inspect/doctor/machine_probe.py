"""``python -m hostcore_inspect.doctor.machine_probe``: torch, the CPU, and the accelerators."""

import importlib.util
import platform
import re
import sys
from pathlib import Path
from typing import Any

from hostcore.probe import Say, answer


def examine(say: Say) -> None:
    """Report the interpreter, torch, the CPU, the driver and the accelerators, in this order."""
    say(
        python={
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
            "machine": platform.machine(),
        }
    )
    say(doing="importing torch")
    origin = importlib.util.find_spec("torch")
    say(torch_file=origin and origin.origin)
    import torch

    say(torch=_torch())
    from hostcore_inspect.doctor.product import check_products

    check_products(torch.device("cpu"), say)
    say(doing="looking for accelerators")
    say(driver=_driver())
    say(accelerators=_accelerators(), reason=_why_none(say))


def _torch() -> dict[str, Any]:
    import torch

    build = "CPU"
    if torch.version.hip:
        build = f"ROCm {torch.version.hip}"
    elif torch.version.cuda:
        build = f"CUDA {torch.version.cuda}"
    return {
        "version": torch.__version__,
        "build": build,
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "distributed": torch.distributed.is_available(),
    }


def _driver() -> dict[str, Any]:
    """Return the accelerators of the system, whether torch can use them or not."""
    version = None
    for path, pattern in (
        ("/proc/driver/nvidia/version", r"Module\D*\s(\d+\.[\d.]+)"),
        ("/sys/module/amdgpu/version", r"(\S+)"),
    ):
        try:
            found = re.search(pattern, Path(path).read_text())
        except OSError:  # there is none
            continue
        version = found.group(1) if found else None
    devices = [str(path) for path in (*sorted(Path("/dev").glob("nvidia[0-9]*")), Path("/dev/kfd")) if path.exists()]
    return {"version": version, "devices": devices}


def _why_none(say: Say) -> str | None:
    """Return the reason of torch for having no CUDA or ROCm device; None if it has one, or was not built for any."""
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return None
    say(doing="starting the driver")
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return str(error).strip().splitlines()[0]
    return None


def _accelerators() -> list[dict[str, Any]]:
    import torch

    found: list[dict[str, Any]] = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            found.append(
                {
                    "name": f"cuda:{index}",
                    "model": properties.name,
                    "memory_bytes": properties.total_memory,
                    "capability": f"{properties.major}.{properties.minor}",
                }
            )
    if torch.backends.mps.is_available():
        found.append({"name": "mps", "model": platform.processor() or "Apple GPU", "memory_bytes": None})
    return found


if __name__ == "__main__":
    answer(examine)
