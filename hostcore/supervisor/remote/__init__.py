"""Stores that fsspec has a file system for: opened, asked and copied from, with errors that people understand."""
