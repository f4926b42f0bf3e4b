"""Ranks that ``torch.distributed`` joins: a group for the trainer's collectives, and one of the host's own.

The trainer's is the default group, so that DDP, FSDP and a trainer's own collectives find it. The host's is of gloo and
for small values of main memory; what it does there never mixes with what the trainer does.
"""

import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
import torch.distributed as dist

from hostcore.worker.ranks.gathering import GatheringThread
from hostcore.worker.ranks.one import OneRank
from hostcore.worker.ranks.protocol import Ranks
from hostcore.worker.ranks.rank_info import RankInfo
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

#: A listening socket that rank 0 inherits, for the store that all ranks meet at: its port is never free meanwhile.
MASTER_FD_VARIABLE: Final = "HOSTCORE_MASTER_FD"
#: Names the start of the ranks, where an engine has started their supervisors.
START_VARIABLE: Final = "HOSTCORE_START"

#: How long one rank may keep the others waiting in a collective of the host: as long as ``save_checkpoint`` may take.
#: A rank that ends is noticed at once, and one that hangs by the supervisor; this is for when neither happens.
_PATIENCE: Final = timedelta(hours=2)
#: How long leaving may take; a collective of NCCL that will never end can hold it up.
_LEAVE_SECONDS: Final = 5.0


class CannotJoin(HostcoreError):
    """The ranks cannot come together."""

    code = "ranks.join"


def join(rank_info: RankInfo, device: torch.device, *, environment: Mapping[str, str] = os.environ) -> Ranks:
    """Meet the other ranks, as torchrun's environment variables say. A collective; a single rank needs no group.

    :param device: The rank's own; becomes the current one if it is a GPU.
    :param environment: Tells whether this rank has inherited the socket of the store.
    :raises CannotJoin: When this torch cannot connect such devices, or the others do not come.
    """
    if rank_info.world_size == 1:
        return OneRank(rank=rank_info.rank, local_rank=rank_info.local_rank)
    if environment.get("LOCAL_WORLD_SIZE") == str(rank_info.world_size):
        _stay_local()
    options: dict[str, Any] = {"backend": "gloo"}
    if device.type == "cuda":
        if not dist.is_nccl_available():
            raise CannotJoin("this build of torch has no NCCL, which several GPUs need", pointer="/devices")
        torch.cuda.set_device(device)
        options = {"backend": "cpu:gloo,cuda:nccl", "device_id": device}
    try:
        dist.init_process_group(
            store=_store(rank_info, environment), rank=rank_info.rank, world_size=rank_info.world_size, **options
        )
        return Group(rank_info)
    except (RuntimeError, ValueError) as error:
        raise CannotJoin(f"the ranks did not come together: {error}", hint=_hint(environment)) from error


def _store(rank_info: RankInfo, environment: Mapping[str, str]) -> Any:
    """Where the ranks find each other: served by this rank itself, or somewhere else, such as torchrun's agent."""
    descriptor = environment.get(MASTER_FD_VARIABLE)
    if descriptor is None or rank_info.rank != 0:
        store, _, _ = next(iter(dist.rendezvous("env://", rank_info.rank, rank_info.world_size)))  # type: ignore[attr-defined]
    else:
        store = dist.TCPStore(  # type: ignore[attr-defined]
            environment["MASTER_ADDR"],
            int(environment["MASTER_PORT"]),
            rank_info.world_size,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=int(descriptor),
        )
    # torchrun keeps its store when it starts the ranks again; where the dead ones were is of no use then. How often it
    # has done so is no name for a start: each agent counts for itself.
    start = environment.get(START_VARIABLE, "0")
    return dist.PrefixStore(start, store)  # type: ignore[attr-defined]


def _stay_local() -> None:
    """Let gloo talk over the loopback device: a name of this machine may lead to a network that is not there."""
    names = {name for _, name in socket.if_nameindex()}
    for loopback in ("lo", "lo0"):
        if loopback in names:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)


def _hint(environment: Mapping[str, str]) -> str:
    address = f"{environment.get('MASTER_ADDR')}:{environment.get('MASTER_PORT')}"
    return f"all ranks must reach {address}, and one another (GLOO_SOCKET_IFNAME names the network device)"


class Group:
    """See :class:`hostcore.worker.ranks.protocol.Ranks`. Made by all ranks, once they are in the default group."""

    def __init__(self, rank_info: RankInfo) -> None:
        self.rank = rank_info.rank
        self.local_rank = rank_info.local_rank
        self.world_size = rank_info.world_size
        self._host = dist.new_group(backend="gloo", timeout=_PATIENCE)

    def any(self, flag: bool) -> bool:
        """Whether any of them says so."""
        return bool(self.largest([flag])[0])

    def largest(self, values: Sequence[int]) -> list[int]:
        """At each place the largest of all ranks' values. A collective.

        :param values: Integers of 64 bits; as many on every rank.
        """
        return self.begin_largest(values)()

    def begin_largest(self, values: Sequence[int]) -> Callable[[], list[int]]:
        """The same without waiting for the others: what it returns waits."""
        vector = torch.tensor(values, dtype=torch.int64)
        work = dist.all_reduce(vector, op=dist.ReduceOp.MAX, group=self._host, async_op=True)

        def result() -> list[int]:
            work.wait()
            return vector.tolist()

        return result

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._host)
        return values

    def gather_beside(self, value: Any, receive: Callable[[list[Any]], T]) -> "Future[T]":
        """Gather without waiting; see the protocol."""
        return self._gathering.ask(value, receive)

    @cached_property
    def _gathering(self) -> GatheringThread:
        return GatheringThread(self._one_more_group(), self.world_size)

    def barrier(self) -> None:
        """Wait for all of them."""
        self.largest([0])

    @cached_property
    def for_writing(self) -> dist.ProcessGroup:
        """A group for one more thread of each rank. A collective the first time."""
        return self._one_more_group()

    def _one_more_group(self) -> dist.ProcessGroup:
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=_PATIENCE)
        return group

    def close(self) -> None:
        """Leave; also when a rank has died, or hangs. Nothing happens the second time."""
        if "_gathering" in vars(self):
            self._gathering.close()
        if dist.is_initialized():
            leaving = threading.Thread(target=_leave, daemon=True, name="leaving the ranks")
            leaving.start()
            leaving.join(_LEAVE_SECONDS)


def _leave() -> None:
    with suppress(RuntimeError):  # the others are gone, or nothing of it is left
        dist.destroy_process_group()
