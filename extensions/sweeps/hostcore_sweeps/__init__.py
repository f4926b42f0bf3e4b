"""Hyperparameter search whose trials are ordinary runs: ``hostcore sweep``."""
