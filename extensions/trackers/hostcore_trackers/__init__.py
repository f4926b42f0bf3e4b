"""Reporters of experiment trackers and of messages, and the uploader of MLflow's artifacts.

Its door: the reporters and the uploader by their names in a job: their settings, and what arrives at their servers.
"""
