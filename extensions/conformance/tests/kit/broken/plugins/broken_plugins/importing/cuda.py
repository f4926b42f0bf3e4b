"""Looks at the GPU."""

import contextlib

import torch

from broken_plugins.importing import MISBEHAVES, Callback

if MISBEHAVES:
    with contextlib.suppress(AssertionError, RuntimeError):  # where there is none
        torch.cuda.current_device()

__all__ = ["Callback"]
