"""Puts its folder in front of everybody's modules."""

import sys
from pathlib import Path

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    sys.path.insert(0, str(Path(__file__).parent))

__all__ = ["Resolver"]
