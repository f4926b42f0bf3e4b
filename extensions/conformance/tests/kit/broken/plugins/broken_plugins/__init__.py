"""Plugins of several kinds, each of which breaks one thing that holds for plugins of every kind."""
