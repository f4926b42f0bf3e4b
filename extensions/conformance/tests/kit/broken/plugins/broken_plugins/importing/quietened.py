"""Hides everybody's warnings."""

import warnings

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    warnings.filterwarnings("ignore")

__all__ = ["Resolver"]
