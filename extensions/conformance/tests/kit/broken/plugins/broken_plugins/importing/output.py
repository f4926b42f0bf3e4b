"""Greets its users."""

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    print("Thank you for using broken_plugins!")

__all__ = ["Resolver"]
