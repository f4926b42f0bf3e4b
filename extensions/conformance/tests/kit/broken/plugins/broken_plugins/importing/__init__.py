"""Plugins whose modules do more than define things when they are imported.

The tests' own process, which imports them as well, is left alone: what they break is seen in the process that the kit
starts for them.
"""

import sys

from broken_plugins import sound

MISBEHAVES = "pytest" not in sys.modules


class Resolver(sound.Resolver):
    """Knows no reference."""


class Callback:
    """Watches nothing."""
