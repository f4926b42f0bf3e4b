"""Artifacts and contexts, as the host makes them."""

from artifacts import artifact, context

__all__ = ["artifact", "context"]
