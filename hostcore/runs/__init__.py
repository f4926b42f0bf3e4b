"""The run directory: the one truth about a run. Any index of runs can be rebuilt from it."""
