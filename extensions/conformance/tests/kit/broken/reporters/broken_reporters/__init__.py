"""Reporters that are the reference reporter with one thing broken."""
