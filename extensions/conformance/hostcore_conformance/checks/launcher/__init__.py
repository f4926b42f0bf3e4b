"""Checks of launchers."""

from hostcore_conformance.checks.launcher import cancelling, ending, launching, logs, planning

__all__ = ["cancelling", "ending", "launching", "logs", "planning"]
