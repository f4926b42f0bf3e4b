"""Going on with a run that lies in a mirror, on a machine that has no copy of it."""
