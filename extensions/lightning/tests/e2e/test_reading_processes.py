"""Rows that other processes read: each of them imports Lightning, which takes ten seconds of a processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lit_jobs import section


def test_rows_are_the_same_for_any_number_of_processes_that_read_them(by_hostcore: Callable[..., Any]) -> None:
    drawn = {"hyperparams": {"datamodule": "user_modules:Noisy"}, "max_steps": 12}
    here, apart = (
        by_hostcore("Plain", **drawn, run_id=f"of-{workers}", dataset={**section(160, 8), "workers": workers})
        for workers in (0, 2)
    )
    assert here.losses == apart.losses
    assert all(torch.equal(value, apart.weights[name]) for name, value in here.weights.items())
