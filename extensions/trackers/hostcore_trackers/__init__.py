"""Reporters of experiment trackers and of messages, and the uploader of MLflow's artifacts."""
