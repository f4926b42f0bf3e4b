"""Inspection of runs: ``hostcore report``, ``hostcore compare``, and the picture of the loss at the end of a run.

Its door: the two commands and the files that they write.
"""
