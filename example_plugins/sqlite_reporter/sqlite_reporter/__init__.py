"""Writes the metrics of runs into a SQLite file."""
