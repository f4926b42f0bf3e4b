"""Goes elsewhere."""

import os

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    os.chdir("/")

__all__ = ["Resolver"]
