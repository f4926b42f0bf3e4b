"""Checkpoints: written so that each is there whole or not at all, found again, and pruned.

``commit`` writes one, ``find`` reads what is there, ``prune`` removes what is no longer wanted, and ``state`` turns the
values of a training state into files. Only ``state`` needs torch.
"""
