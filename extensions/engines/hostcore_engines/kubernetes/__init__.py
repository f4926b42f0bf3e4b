"""Launchers for Kubernetes: Kubeflow's PyTorchJob (v1) and TrainJob (Trainer v2).

::

    settings ─┐
    context ──┴▶ pods (command, environment, volumes, security) ▶ manifest ▶ check ▶ cluster (the official client)
                                                          conditions, pods, logs ◀──────┘

The client, the extra ``kubernetes``, is imported when a cluster is asked something, and by :mod:`.cluster` alone.
"""
