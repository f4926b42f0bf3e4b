"""Handles a signal."""

import signal

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

__all__ = ["Resolver"]
