"""Callbacks that ship with hostcore. torch is imported where it is used: the host lists them without it."""
