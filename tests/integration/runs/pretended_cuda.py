"""A callback whose import makes a worker without CUDA believe that it has what CUDA_VISIBLE_DEVICES says.

Only what the host asks of CUDA before a run is pretended: the trainers of this suite compute on the CPU whatever their
device is called.
"""

import os
from pathlib import Path
from typing import Any

import torch

from hostcore.worker import attempt, startup

_VISIBLE = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",") if one]
_ones, _join = torch.ones, attempt.join


def _pretended_ones(*size: int, device: Any = None, **options: Any) -> torch.Tensor:
    on_cuda = device is not None and torch.device(device).type == "cuda"
    return _ones(*size, device="cpu" if on_cuda else device, **options)


startup.available_devices = lambda: (*(f"cuda:{index}" for index in range(len(_VISIBLE))), "cpu")
torch.ones = _pretended_ones
attempt.join = lambda place, device: _join(place, torch.device("cpu"))


class Sees:
    """Writes into ``<run_id>.sees`` which device each rank has, and which GPUs CUDA would show it."""

    def on_train_begin(self, run_state: Any, ctx: Any) -> None:
        said = f"{ctx.device} of {os.environ.get('CUDA_VISIBLE_DEVICES')}"
        Path(f"{ctx.job.run_id}.{ctx.local_rank}.sees").write_text(said)


class PrefersTheCpu(Sees):
    """Chooses the CPU whatever there is."""

    def select_device(self, available: Any) -> str:
        return "cpu"
