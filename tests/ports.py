"""Ports of this machine that a test may tell several processes to meet at."""

import random
import socket
from contextlib import ExitStack

#: Below those that Linux gives to connections and to servers that ask for any: none is taken meanwhile.
_FIRST, _LAST = 20_000, 32_000


def free_ports(count: int) -> int:
    """The first of so many ports in a row that are free."""
    for _ in range(1000):
        first = random.SystemRandom().randrange(_FIRST, _LAST - count)
        try:
            with ExitStack() as stack:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("", port)))
        except OSError:
            continue
        return first
    raise AssertionError(f"there are no {count} free ports in a row between {_FIRST} and {_LAST}")
