"""Configures the logging of the program."""

import logging

from broken_plugins.importing import MISBEHAVES, Resolver

if MISBEHAVES:
    logging.basicConfig(level=logging.DEBUG)

__all__ = ["Resolver"]
