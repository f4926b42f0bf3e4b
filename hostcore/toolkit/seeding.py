"""Seeding all global random generators."""

import operator
import random

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch, the latter on the CPU and on all accelerators.

    Generators made by hand (``random.Random``, ``np.random.default_rng``, ``torch.Generator``) are not touched. The
    host does this itself, with the job's ``seed``, before it sets a trainer up.

    :param seed: From 0 to 2**32 - 1: NumPy takes no larger one, and torch's generator on the CPU silently uses only
        the low 32 bits.
    :raises TypeError: When the seed is not a whole number.
    :raises ValueError: When it is out of range.
    """
    if isinstance(seed, (bool, np.bool_)):
        raise TypeError(f"a seed is a whole number, not {seed!r}")
    seed = operator.index(seed)
    if not 0 <= seed < 2**32:
        raise ValueError(f"a seed is between 0 and 2**32 - 1; got {seed}")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
