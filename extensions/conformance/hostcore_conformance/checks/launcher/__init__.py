"""Checks of launchers."""
