"""Reporters that ship with hostcore and talk to something else. A library that one needs is imported when it opens."""
