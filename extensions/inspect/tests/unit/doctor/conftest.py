"""Fixtures of commands: the command, and the modules that it imports."""

from cli_fixtures import hostcore, imported

__all__ = ["hostcore", "imported"]
