"""Writes a file."""

from pathlib import Path

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    Path("imported.log").write_text("imported\n")

__all__ = ["Resolver"]
