"""Callbacks with one thing broken each."""
