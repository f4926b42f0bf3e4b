"""Starts a thread."""

import threading

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    threading.Thread(target=sum, args=((),), name="refresher").start()

__all__ = ["Resolver"]
