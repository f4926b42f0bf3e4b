"""Uploaders that are the reference uploader with one thing broken."""
