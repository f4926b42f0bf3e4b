"""The command, called in this process."""

from cli_fixtures import hostcore, imported

__all__ = ["hostcore", "imported"]
