"""Seeds the global random generators."""

import random

import numpy as np

from broken_plugins.importing import MISBEHAVES, Callback

if MISBEHAVES:
    random.seed(0)
    np.random.seed(0)

__all__ = ["Callback"]
