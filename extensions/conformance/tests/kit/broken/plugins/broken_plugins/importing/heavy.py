"""Imports torch, where nobody needs it."""

from importlib import import_module

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    import_module("torch")

__all__ = ["Resolver"]
