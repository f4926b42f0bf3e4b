"""Keeps runs in a folder, each different content once."""
