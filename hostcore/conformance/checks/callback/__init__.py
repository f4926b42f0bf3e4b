"""Checks of callbacks."""

from hostcore.conformance.checks.callback import leaving, observing, running, state

__all__ = ["leaving", "observing", "running", "state"]
