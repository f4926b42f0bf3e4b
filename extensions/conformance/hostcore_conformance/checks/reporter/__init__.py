"""Checks of reporters: they take every event, and bring it where it belongs."""
