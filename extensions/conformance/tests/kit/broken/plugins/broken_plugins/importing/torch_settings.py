"""Sets what all code in the process computes with."""

import torch

from broken_plugins.importing import MISBEHAVES, Callback

if MISBEHAVES:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)

__all__ = ["Callback"]
