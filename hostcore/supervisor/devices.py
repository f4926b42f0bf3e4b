"""The devices of several ranks: each has one of its own, and it is clear which."""

from collections import Counter
from collections.abc import Sequence

from hostcore.job.origins import mark
from hostcore.job.spec import JobSpec
from hostcore_hookspecs.errors import HostcoreError


def require_clear_devices(spec: JobSpec) -> None:
    """See that a job with several devices says which GPUs it means.

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
    """What is wrong with the devices that the ranks of one machine have found; None if nothing is.

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
    mark([error], spec.origins)
    return error
