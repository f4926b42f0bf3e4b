"""A plugin host for machine-learning training jobs."""
