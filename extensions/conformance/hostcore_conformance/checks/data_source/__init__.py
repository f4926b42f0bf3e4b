"""Checks of data sources."""
