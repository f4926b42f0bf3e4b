"""Fixtures of commands: the command, and the runs that it is asked about."""

from cli_fixtures import hostcore, imported, run, tell

__all__ = ["hostcore", "imported", "run", "tell"]
