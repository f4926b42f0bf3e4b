"""Sets a variable of the environment."""

import os

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    os.environ["BROKEN_PLUGINS"] = "1"

__all__ = ["Resolver"]
