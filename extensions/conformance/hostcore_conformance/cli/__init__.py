"""The commands ``hostcore check`` and ``hostcore new``."""
