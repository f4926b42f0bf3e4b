"""Reads handwritten digits."""
