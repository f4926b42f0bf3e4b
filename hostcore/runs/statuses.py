"""Statuses of a run."""

from typing import Final

#: In the order of its life. ``submitted``: recorded, but no attempt has begun.
STATUSES: Final = ("submitted", "running", "succeeded", "failed", "cancelled", "preempted", "lost")
#: Statuses that may change by themselves.
ALIVE: Final = frozenset({"submitted", "running"})
