"""Faults that a job injects into its own run, for drills: ``hostcore run --chaos kill@step=37``."""
