"""Devices: the GPUs that this process may see, found without torch, and the device of each of several ranks."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from hostcore.job.document import blame
from hostcore.job.spec import JobSpec
from hostcore_hookspecs.errors import HostcoreError

#: The GPUs that a process may see, in order; torch numbers them in that order.
VISIBLE_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
#: CUDA numbers the fastest GPU first unless this is ``PCI_BUS_ID``, which is how ``nvidia-smi`` numbers them.
ORDER_VARIABLE: Final = "CUDA_DEVICE_ORDER"
#: Without the persistence daemon, nvidia-smi takes seconds to start the driver.
_TIMEOUT_SECONDS: Final = 20.0


@attrs.frozen(kw_only=True)
class Accelerator:
    """A GPU that this process may see."""

    #: What a job calls it: ``cuda:0`` is the first that this process may see.
    name: str
    #: Its entry in ``CUDA_VISIBLE_DEVICES``: a number or a UUID.
    entry: str
    #: The same in every process of the machine.
    uuid: str


@attrs.frozen(kw_only=True)
class Accelerators:
    """GPUs that were found."""

    found: Sequence[Accelerator] = ()
    #: Why it is not known what there is; empty: it is known.
    trouble: str = ""


def find_accelerators(environment: Mapping[str, str]) -> Accelerators:
    """Query ``nvidia-smi``; where there is none, there are no GPUs that can be distinguished.

    :param environment: That of this process. ``CUDA_VISIBLE_DEVICES`` restricts and orders what is found.
    """
    visible = environment.get(VISIBLE_VARIABLE)
    command = shutil.which("nvidia-smi", path=environment.get("PATH"))
    if command is None or (visible is not None and visible.strip() in ("", "-1")):
        return Accelerators()
    try:
        listed = _ask(command)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Accelerators(trouble=f"nvidia-smi failed: {error}")
    everything = ",".join(str(index) for index, _ in listed)
    chosen = _visible(everything if visible is None else visible, dict(listed))
    found = [Accelerator(name=f"cuda:{number}", entry=one, uuid=uuid) for number, (one, uuid) in enumerate(chosen)]
    return Accelerators(found=found)


def _ask(command: str) -> list[tuple[int, str]]:
    """Index and UUID of each GPU, in the order of the indices."""
    query = [command, "--query-gpu=index,uuid", "--format=csv,noheader"]
    process = subprocess.Popen(
        query, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    try:
        output, _ = process.communicate(timeout=_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # and is not waited for: a process inside a broken driver does not die
        raise
    lines = [line for line in output.splitlines() if line.strip()]
    if process.returncode:
        raise ValueError(lines[0].strip() if lines else f"it exited with code {process.returncode}")
    listed = [line.partition(",") for line in lines]
    return sorted((int(index), uuid.strip()) for index, _, uuid in listed)


def _visible(visible: str, uuids: Mapping[int, str]) -> list[tuple[str, str]]:
    """The GPUs that the variable names: entry and UUID. As CUDA reads it, the first wrong entry ends the list.

    :param uuids: By index.
    """
    chosen: dict[str, str] = {}  # entry by UUID
    for entry in (one.strip() for one in visible.split(",")):
        if entry.isdecimal():
            uuid = uuids.get(int(entry), "")
        elif entry.startswith("MIG-"):  # a part of a GPU, which nvidia-smi does not list so
            uuid = entry
        else:  # the beginning of a UUID is enough
            alike = [one for one in uuids.values() if entry and one.startswith(entry)]
            uuid = alike[0] if len(alike) == 1 else ""
        if not uuid or uuid in chosen:
            break
        chosen[uuid] = entry
    return [(entry, uuid) for uuid, entry in chosen.items()]


def require_clear_devices(spec: JobSpec) -> None:
    """See that a job with several devices names each GPU.

    :raises HostcoreError: When ``cuda``, which is the first GPU, stands beside another one.
    """
    asked = spec.requested_devices
    gpus = [device for device in asked if device.startswith("cuda")]
    if len(gpus) < 2 or "cuda" not in gpus:
        return
    raise HostcoreError(
        '"cuda" in a list of devices does not say which GPU is meant',
        code="job.conflict",
        pointer="/devices",
        hint=f"name them: {', '.join(f'cuda:{index}' for index in range(len(gpus)))}",
    )


def shared_device(spec: JobSpec, devices: Sequence[str]) -> HostcoreError | None:
    """Return an error if ranks of one machine have found the same device; None if not.

    :param devices: By rank.
    """
    counted = Counter(device for device in devices if device != "cpu")
    device, ranks = next(iter(counted.most_common(1)), ("", 0))
    if ranks < 2:
        return None
    error = HostcoreError(
        f"{ranks} ranks cannot share {device}",
        code="device.shared",
        pointer="/devices",
        hint="each rank needs a device of its own; only cpu can be named more than once",
    )
    blame([error], spec.origins)
    return error
