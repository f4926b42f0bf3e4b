"""Takes its time."""

import time

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    time.sleep(1.2)

__all__ = ["Resolver"]
