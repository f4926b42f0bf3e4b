"""The GPUs of a machine, divided among the runs on it: each run holds a lease on every GPU that it uses.

A lease is a lock (``flock``) on a file that is named after the GPU's UUID. The supervisor takes it before it starts its
workers, and they inherit it: the kernel frees the GPU when the last of these processes is gone, however they end. The
text in the file only names the holder of the lock; a file without a lock means nothing.

Of runs that start at the same moment, one chooses at a time: they hold a lock on the folder meanwhile.
"""

import fcntl
import os
import re
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs
import orjson

from hostcore.job.document import blame
from hostcore.job.spec import JobSpec
from hostcore.runs.lease import ProcessIdentity
from hostcore.supervisor.devices import (
    ORDER_VARIABLE,
    VISIBLE_VARIABLE,
    Accelerator,
    find_accelerators,
)
from hostcore.supervisor.engine import SUPERVISOR_VARIABLE
from hostcore_hookspecs.errors import HostcoreError

#: The folder of the leases. All runs that share GPUs must agree on it.
DEVICES_DIR_VARIABLE: Final = "HOSTCORE_DEVICES_DIR"
#: Not in $TMPDIR, which may differ between two terminals: their runs would not see each other's leases.
_USUAL_FOLDER: Final = f"/tmp/hostcore-devices-{os.getuid()}"  # noqa: S108 - see _require_own
#: Choosing takes milliseconds, so a folder that is locked for so long is locked by something else.
_TURN_SECONDS: Final = 10.0
#: Workers notice within 5 seconds that their supervisor was killed, and end; on a busy machine a little later.
_ENDING_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.1
_MOST_BYTES: Final = 4096


class DeviceBusy(HostcoreError):
    """Other runs hold the devices that the job asks for."""

    code = "device.busy"


class DeviceLeasesUnusable(HostcoreError):
    """The folder of the leases cannot be used."""

    code = "device.leases"


@attrs.frozen(kw_only=True)
class Holder:
    """Holder of a lease, from its file."""

    run_id: str = ""
    process: ProcessIdentity | None = None

    def __str__(self) -> str:
        if self.process is None:
            return "another process"
        return f"run {self.run_id} (process {self.process.pid})"

    @property
    def is_ending(self) -> bool:
        """True if its supervisor is gone, so that its workers end soon."""
        return self.process is not None and self.process.is_here and not self.process.runs

    @classmethod
    def read(cls, descriptor: int) -> "Holder":
        """Read a lease's file, which another user may have written."""
        with suppress(ValueError, KeyError, TypeError):
            found = orjson.loads(os.pread(descriptor, _MOST_BYTES, 0))
            process = ProcessIdentity(**found["process"])
            if isinstance(process.pid, int) and re.fullmatch(r"[A-Za-z0-9._-]{1,128}", found["run_id"]):
                return cls(run_id=found["run_id"], process=process)
        return cls()

    def write(self, descriptor: int) -> None:
        """Write the holder into a lease's file."""
        content = orjson.dumps(attrs.asdict(self))
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)


@attrs.define(eq=False, kw_only=True)
class HeldDevices:
    """The GPUs that a run holds; none if it needs none, or it is not known what there is. A context manager."""

    #: In the order of the ranks.
    devices: Sequence[Accelerator] = ()
    #: Of their leases, by the names of the devices. A device that is shared with its holder has none.
    leases: dict[str, int] = attrs.field(factory=dict)
    #: Why the GPUs of this machine are not known; empty: they are.
    trouble: str = ""

    @property
    def names(self) -> list[str]:
        """The job's names for them; the workers see the first as ``cuda:0``, the second as ``cuda:1``."""
        return [device.name for device in self.devices]

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which the workers see these devices alone, in this order."""
        if not self.devices:
            return {}
        visible = ",".join(device.entry for device in self.devices)
        return {VISIBLE_VARIABLE: visible, ORDER_VARIABLE: "PCI_BUS_ID"}

    @property
    def inherited(self) -> list[int]:
        """The descriptors that the workers are to inherit."""
        return list(self.leases.values())

    def keep(self, used: Collection[str]) -> None:
        """Let go of the devices that no rank has chosen: a hook may prefer the CPU, or torch be a build for it."""
        for name in [name for name in self.leases if name not in used]:
            descriptor = self.leases.pop(name)
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # the workers have inherited it
            os.close(descriptor)

    def close(self) -> None:
        """Let go of all. What is left of the workers holds them until it ends."""
        while self.leases:
            os.close(self.leases.popitem()[1])

    def __enter__(self) -> "HeldDevices":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hold_devices(spec: JobSpec, environment: Mapping[str, str] = os.environ) -> HeldDevices:
    """Take the GPUs that a job asks for; for each ``auto`` the first that is free.

    A job that asks for none takes none, and so does a run inside a worker: that one's run holds its devices.

    :param environment: That of this process.
    :raises DeviceBusy: When other runs hold them.
    :raises HostcoreError: When there are not so many, or the leases cannot be taken.
    """
    asked = list(dict.fromkeys(_gpus_of(spec)))
    if SUPERVISOR_VARIABLE in environment or not (asked or "auto" in spec.requested_devices):
        return HeldDevices()
    machine = find_accelerators(environment)
    if not machine.found:
        return HeldDevices(trouble=machine.trouble)
    count = len(asked) or len(spec.requested_devices)
    try:
        candidates = _candidates(asked, count, machine.found)
        with _folder(environment) as folder:
            return _held(spec, candidates, count, folder)
    except HostcoreError as error:
        error.pointer = error.pointer or ("/devices" if spec.devices else "/device")
        blame([error], spec.origins)
        raise


def device_holders(environment: Mapping[str, str] = os.environ) -> dict[str, Holder | None]:
    """Return the holder of each GPU of this machine that this process may see; None for one that is free.

    :raises DeviceLeasesUnusable: When the leases cannot be read.
    """
    found: dict[str, Holder | None] = {}
    machine = find_accelerators(environment)
    if not machine.found:
        return found
    with _folder(environment) as folder, _turn(folder):
        for device in machine.found:
            with _opened(folder, device) as lease:
                found[device.name] = None if _lock(lease, fcntl.LOCK_EX) else Holder.read(lease)
    return found


def _gpus_of(spec: JobSpec) -> Iterator[str]:
    for name in spec.requested_devices:
        if name.startswith("cuda"):
            yield "cuda:0" if name == "cuda" else name


def _candidates(asked: Sequence[str], count: int, found: Sequence[Accelerator]) -> list[Accelerator]:
    """The devices of which some are taken: those that are named, or all.

    :raises HostcoreError: When there are not so many.
    """
    by_name = {device.name: device for device in found}
    has = f"this machine has: {', '.join([*by_name, 'cpu'])}"
    if missing := [name for name in asked if name not in by_name]:
        raise HostcoreError(f"there is no device {missing[0]!r} here", code="device.unavailable", hint=has)
    if count > len(found):
        message = f"{count} devices are asked for, and there are {len(found)}"
        raise HostcoreError(message, code="device.unavailable", hint=has)
    return [by_name[name] for name in asked] or list(found)


def _held(spec: JobSpec, candidates: Sequence[Accelerator], count: int, folder: int) -> HeldDevices:
    due = time.monotonic() + _ENDING_SECONDS
    while True:
        with _turn(folder):
            held, busy = _take(spec, candidates, count, folder)
        if held is not None:
            return held
        # A run whose supervisor was killed is resumed at once: the workers of before see that within seconds.
        if time.monotonic() >= due or not any(holder.is_ending for holder in busy.values()):
            raise _busy(spec, candidates, count, busy)
        time.sleep(_POLL_SECONDS)


def _take(
    spec: JobSpec, candidates: Sequence[Accelerator], count: int, folder: int
) -> tuple[HeldDevices | None, dict[str, Holder]]:
    """Take devices, if there are enough; and who holds those that are not free."""
    leases: dict[str, int] = {}
    others: dict[str, int] = {}
    with ExitStack() as opened:
        for device in candidates:
            if len(leases) == count:
                break
            descriptor = opened.enter_context(_opened(folder, device))
            if _lock(descriptor, fcntl.LOCK_EX):
                leases[device.name] = descriptor
            else:
                others[device.name] = descriptor
        busy = {name: Holder.read(descriptor) for name, descriptor in others.items()}
        chosen = [*leases, *(list(others)[: count - len(leases)] if spec.share_devices else ())]
        if len(chosen) < count:
            return None, busy
        if spec.share_devices:  # a device that its holder does not share is used without a lock
            opened_by = {**others, **leases}
            leases = {name: opened_by[name] for name in chosen if _lock(opened_by[name], fcntl.LOCK_SH)}
        own = Holder(run_id=spec.run_id, process=ProcessIdentity.current())
        for descriptor in leases.values():
            own.write(descriptor)
        leases = {name: os.dup(descriptor) for name, descriptor in leases.items()}
    devices = [device for device in candidates if device.name in chosen]
    return HeldDevices(devices=devices, leases=leases), busy


def _busy(spec: JobSpec, candidates: Sequence[Accelerator], count: int, busy: Mapping[str, Holder]) -> DeviceBusy:
    told = ", ".join(f"{name} is held by {holder}" for name, holder in busy.items())
    free = len(candidates) - len(busy)
    if "auto" in spec.requested_devices and len(candidates) > 1:
        are_free = "is free" if free == 1 else "are free"
        told = f"{free} of {len(candidates)} GPUs {are_free}, and the job asks for {count}: {told}"
    return DeviceBusy(
        told,
        hint="wait until a run there has ended, choose another device (--devices cpu), or share it on purpose: "
        "--set share_devices=true",
    )


@contextmanager
def _folder(environment: Mapping[str, str]) -> Iterator[int]:
    """A descriptor of the folder of the leases.

    :raises DeviceLeasesUnusable: When it cannot be used; also when what is done while it is open fails so.
    """
    given = environment.get(DEVICES_DIR_VARIABLE)
    path = Path(given or _USUAL_FOLDER)
    descriptor = None
    try:
        path.mkdir(mode=0o777 if given else 0o700, parents=bool(given), exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | (0 if given else os.O_NOFOLLOW))
        if not given:
            _require_own(path, os.fstat(descriptor))
        yield descriptor
    except OSError as error:
        raise DeviceLeasesUnusable(
            f"devices cannot be leased: {error.strerror or error}",
            file=str(path),
            hint=f"set {DEVICES_DIR_VARIABLE} to a folder on a local disk that you may write to",
        ) from error
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _require_own(path: Path, found: os.stat_result) -> None:
    """See that the usual folder is this user's alone: any user may make one of its name."""
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise DeviceLeasesUnusable(
            "devices cannot be leased: the folder belongs to another user, or others may write to it",
            file=str(path),
            hint=f"remove it, or set {DEVICES_DIR_VARIABLE} to another folder",
        )


@contextmanager
def _turn(folder: int) -> Iterator[None]:
    """Be the only process that chooses."""
    due = time.monotonic() + _TURN_SECONDS
    while not _lock(folder, fcntl.LOCK_EX):
        if time.monotonic() >= due:
            raise OSError(f"another process has locked the folder for {_TURN_SECONDS:g} s")
        time.sleep(_POLL_SECONDS / 10)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


@contextmanager
def _opened(folder: int, device: Accelerator) -> Iterator[int]:
    """A descriptor of a device's lease."""
    name = f"{re.sub(r'[^A-Za-z0-9._-]', '-', device.uuid)}.lease"
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:  # the kernel may forbid O_CREAT for a file of another user's that is there
        descriptor = os.open(name, flags | os.O_CREAT, 0o666, dir_fd=folder)
        os.fchmod(descriptor, 0o666)  # whatever the umask: those who may enter the folder share the leases
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    """Take a lock; whether it was free."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
