"""Checks of uploaders: they bring files where they belong, and nothing else."""
