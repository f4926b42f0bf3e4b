"""Runs and plugins as people read them: the words of commands, and the pages that they write."""
