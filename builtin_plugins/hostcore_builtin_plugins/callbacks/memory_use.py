"""How much memory a device or this process takes, in words."""

import sys
from pathlib import Path
from typing import Final

from hostcore_builtin_plugins.callbacks.batch_shapes import in_words

_STATUS: Final = Path("/proc/self/status")
_MACHINE: Final = Path("/proc/meminfo")


def describe_memory(device: str) -> str:
    """What is in use now, was at most, and is there.

    :param device: Such as ``cuda:0``; of one that has no memory of its own, the process's is told.
    """
    kind = device.partition(":")[0]
    if kind == "cuda":
        return _of_cuda(device)
    return _of_mps() if kind == "mps" else _of_process()


def _of_cuda(device: str) -> str:
    import torch

    used, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    peak = torch.cuda.max_memory_allocated(device)
    free, total = torch.cuda.mem_get_info(device)
    return (
        f"{device} has {in_words(total)}, of which {in_words(free)} are free; PyTorch holds {in_words(reserved)}, "
        f"{in_words(used)} of it in tensors, and {in_words(peak)} at the peak"
    )


def _of_mps() -> str:
    import torch

    used, driver = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
    return (
        f"Metal has given the process {in_words(driver)}, {in_words(used)} of it in tensors; it recommends at most "
        f"{in_words(torch.mps.recommended_max_memory())}"
    )


def _of_process() -> str:
    own, machine = _kibibytes(_STATUS), _kibibytes(_MACHINE)
    if not own:
        return f"the process took {in_words(_peak())} at the peak"
    words = f"the process takes {in_words(own['VmRSS'])}, and {in_words(own['VmHWM'])} at the peak"
    if machine:
        words += (
            f"; the machine has {in_words(machine['MemTotal'])}, of which {in_words(machine['MemAvailable'])} are free"
        )
    return words


def _kibibytes(path: Path) -> dict[str, int]:
    """The sizes in a file of ``/proc``, in bytes; none where there is no such file."""
    if not path.exists():
        return {}
    lines = [line.split() for line in path.read_text().splitlines()]
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
