"""Checks of a run: that it has lost, skipped and repeated nothing. ``hostcore verify`` makes them."""
