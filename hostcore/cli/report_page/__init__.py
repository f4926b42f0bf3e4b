"""The page that ``hostcore report`` writes: a run in one HTML file that needs nothing else."""
