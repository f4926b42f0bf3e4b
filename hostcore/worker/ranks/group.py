"""Ranks that ``torch.distributed`` joins: a group for the trainer's collectives, and one of the host's own.

The trainer's is the default group, so that DDP, FSDP and a trainer's own collectives find it. The host's is of gloo and
for small values of main memory; what it does there never mixes with what the trainer does.
"""

import os
import pickle
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from queue import SimpleQueue
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist

from hostcore.worker.ranks.one import OneRank
from hostcore.worker.ranks.protocol import Ranks
from hostcore.worker.ranks.rank_info import RankInfo
from hostcore_hookspecs.errors import HostcoreError

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
#: What a value that is gathered beside the training may take at first, in bytes: the totals of about thirty metrics.
_FIRST_ROOM: Final = 1024
#: In front of each of them: how long it is, in bytes.
_LENGTH: Final = 8


class CannotJoin(HostcoreError):
    """The ranks cannot come together."""

    code = "ranks.join"


def join(rank_info: RankInfo, device: torch.device, *, environment: Mapping[str, str] = os.environ) -> Ranks:
    """Meet the other ranks by torchrun's environment variables. A collective; a single rank needs no group.

    :param device: The rank's own; becomes the current one if it is a GPU.
    :param environment: Has a variable if this rank has inherited the socket of the store.
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
    """Open the store where the ranks meet: served by this rank itself, or elsewhere, such as by torchrun's agent."""
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
        self._host = self._one_more_group()
        # Made now: each new group waits for all ranks, and they come to their first metrics at different moments.
        self._gathering = GatheringThread(self._one_more_group(), self.world_size)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank."""
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
        self._gathering.close()
        if dist.is_initialized():
            leaving = threading.Thread(target=_leave, daemon=True, name="leaving the ranks")
            leaving.start()
            leaving.join(_LEAVE_SECONDS)


class GatheringThread:
    """Gathers beside the training: what it is asked to, in that order. All ranks ask for the same.

    It never waits for the loop, so a rank that waits for its result waits for the other ranks' threads alone, whatever
    their loops do meanwhile. Values of up to a known size take one collective; a longer one of any rank takes a second,
    and makes that size known to all.

    :param group: Used by nothing else.
    """

    def __init__(self, group: dist.ProcessGroup, world_size: int) -> None:
        self._group = group
        self._world_size = world_size
        self._make_room(_FIRST_ROOM)
        #: Each does one piece of work; None: there is no more.
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._serve, daemon=True, name="gathering").start()

    def ask(self, value: Any, receive: Callable[[list[Any]], T]) -> "Future[T]":
        """See :meth:`hostcore.worker.ranks.protocol.Ranks.gather_beside`."""
        future: Future[T] = Future()

        def gather() -> None:
            try:
                future.set_result(receive(self._gather(value)))
            except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                future.set_exception(error)

        self._asked.put(gather)
        return future

    def close(self) -> None:
        """End, behind what has been asked for."""
        self._asked.put(None)

    def _serve(self) -> None:
        while (gather := self._asked.get()) is not None:
            gather()

    def _make_room(self, room: int) -> None:
        """Make what a collective reads and fills, for values of so many bytes: memory that torch and Python share."""
        size = _LENGTH + room
        self._room = room
        self._own, self._all = bytearray(size), [bytearray(size) for _ in range(self._world_size)]
        self._box = torch.frombuffer(self._own, dtype=torch.uint8)
        self._boxes = [torch.frombuffer(one, dtype=torch.uint8) for one in self._all]

    def _gather(self, value: Any) -> list[Any]:
        own = pickle.dumps(value)
        while True:
            self._own[:_LENGTH] = len(own).to_bytes(_LENGTH, "little")
            part = own[: self._room]
            self._own[_LENGTH : _LENGTH + len(part)] = part
            dist.all_gather(self._boxes, self._box, group=self._group)
            longest = max(int.from_bytes(one[:_LENGTH], "little") for one in self._all)
            if longest <= self._room:
                return [pickle.loads(memoryview(one)[_LENGTH:]) for one in self._all]  # noqa: S301 - of the other ranks
            self._make_room(1 << longest.bit_length())


def _leave() -> None:
    with suppress(RuntimeError):  # the others are gone, or nothing of it is left
        dist.destroy_process_group()
