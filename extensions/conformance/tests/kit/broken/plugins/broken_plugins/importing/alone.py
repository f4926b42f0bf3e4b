"""Needs a module that others happen to have imported."""

import sys

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    sys.modules["hostcore.supervisor"]

__all__ = ["Resolver"]
