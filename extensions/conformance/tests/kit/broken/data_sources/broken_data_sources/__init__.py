"""Data sources with one thing broken each."""
