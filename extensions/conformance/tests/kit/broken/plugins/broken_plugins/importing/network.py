"""Asks a server."""

import contextlib
import socket

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", 9), timeout=1)

__all__ = ["Resolver"]
