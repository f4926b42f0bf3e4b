"""Faults that a job injects into its own run, for drills: ``hostcore run --chaos kill@step=37``.

Its door: that option, and the callback and uploader ``chaos`` of a job.
"""
