"""Checks of callbacks."""
