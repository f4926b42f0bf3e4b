"""Hyperparameter search whose trials are ordinary runs: ``hostcore sweep``.

Its door: the command, ``hostcore.sweep`` in Python, the sweep file, the folder of a sweep, and its section of
the service.
"""
