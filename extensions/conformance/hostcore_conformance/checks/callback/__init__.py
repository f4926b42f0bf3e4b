"""Checks of callbacks."""

from hostcore_conformance.checks.callback import leaving, observing, running, state

__all__ = ["leaving", "observing", "running", "state"]
