"""Ports of this machine that a test may tell several processes to meet at."""

import os
import random
import socket
from contextlib import ExitStack

#: Below those that Linux gives to connections and to servers that ask for any: none is taken meanwhile.
_FIRST, _LAST = 20_000, 32_000
#: What this process has told already: who was told may not listen yet.
_told: set[int] = set()


def free_ports(count: int) -> int:
    """The first of so many ports in a row that are free, and that no other test is told."""
    own = _of_this_process()
    for _ in range(1000):
        first = random.SystemRandom().randrange(own.start, own.stop - count)
        ports = range(first, first + count)
        if not _told.isdisjoint(ports):
            continue
        try:
            with ExitStack() as stack:
                for port in ports:
                    stack.enter_context(socket.create_server(("", port)))
        except OSError:
            continue
        _told.update(ports)
        return first
    raise AssertionError(f"there are no {count} free ports in a row between {own.start} and {own.stop}")


def _of_this_process() -> range:
    """The processes of one pytest have a part each."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % processes
    size = (_LAST - _FIRST) // processes
    return range(_FIRST + number * size, _FIRST + (number + 1) * size)
