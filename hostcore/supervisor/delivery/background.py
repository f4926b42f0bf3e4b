"""Threads that must not be in the way of the training."""

import os
import threading
from contextlib import suppress
from typing import Final

_NICENESS: Final = 10


def lower_priority() -> None:
    """Have the operating system prefer everybody else to the calling thread, where threads have priorities (Linux)."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
