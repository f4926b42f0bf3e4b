"""Starts a program."""

import subprocess
import sys

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)

__all__ = ["Resolver"]
