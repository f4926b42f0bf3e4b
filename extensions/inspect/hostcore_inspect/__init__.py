"""Inspection of runs and machines: ``hostcore report``, ``compare`` and ``doctor``, and the picture of the loss.

Its door: the three commands and the files that they write.
"""
