"""Uploaders that ship with hostcore. Clients of stores are imported when an uploader is opened."""
