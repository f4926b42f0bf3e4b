"""What can become of a run."""

from typing import Final

#: In the order of its life. ``submitted``: recorded, but no attempt has begun.
STATUSES: Final = ("submitted", "running", "succeeded", "failed", "cancelled", "preempted", "lost")
#: What may still become something else by itself.
ALIVE: Final = frozenset({"submitted", "running"})
