"""Decides how everybody's processes are started."""

import multiprocessing

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    multiprocessing.set_start_method("spawn")

__all__ = ["Resolver"]
