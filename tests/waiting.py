"""Waiting for what other processes and threads do."""

import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], Any], what: str, *, seconds: float = 120) -> Any:
    """Wait for a condition; how long it takes proves nothing, but it must not take for ever.

    :return: What the condition returned, which is true.
    :raises AssertionError: It names ``what`` was waited for.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s in vain for: {what}")
