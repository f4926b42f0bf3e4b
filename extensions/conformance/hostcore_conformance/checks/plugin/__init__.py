"""Checks of plugins of every kind."""
