"""Inspection of runs: ``hostcore report``, ``hostcore compare``, and the picture of the loss at the end of a run."""
