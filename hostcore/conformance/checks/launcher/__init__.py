"""Checks of launchers."""

from hostcore.conformance.checks.launcher import cancelling, ending, launching, logs, planning

__all__ = ["cancelling", "ending", "launching", "logs", "planning"]
