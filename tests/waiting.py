"""Waiting for what other processes and threads do."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wait_until(
    condition: Callable[[], Any], what: str, *, seconds: float = 300, found: Callable[[], str] | None = None
) -> Any:
    """Wait for a condition; how long it takes proves nothing, but it must not take for ever.

    :param seconds: With four runs on two cores, two nodes of Ray have taken more than 120 seconds to begin.
    :param found: Tells at the end what there was instead.
    :return: What the condition returned, which is true.
    :raises AssertionError: It names ``what`` was waited for.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    instead = f"; there is:\n{found()}" if found else ""
    raise AssertionError(f"waited {seconds} s in vain for: {what}{instead}")


def is_gone(pid: int) -> bool:
    """Whether a process has ended; if nobody has waited for it, it is still in the table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the latter: between opening and reading
        return True
