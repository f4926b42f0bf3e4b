"""Gathering beside the training: in a thread, over a process group that nothing else uses.

The thread never waits for the loop, so a rank that waits for its result waits for the other ranks' threads alone,
whatever their loops do meanwhile. Values of up to a known size take one collective; a longer one of any rank takes a
second, and makes that size known to all.
"""

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")

#: What a value may take at first, in bytes: the totals of about thirty metrics.
_FIRST_ROOM: Final = 1024
#: In front of each value: how long it is, in bytes.
_LENGTH: Final = 8


class GatheringThread:
    """Gathers what it is asked to, in that order. All ranks ask for the same.

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
