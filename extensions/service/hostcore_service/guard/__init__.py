"""Limits on the contents of jobs from others."""
