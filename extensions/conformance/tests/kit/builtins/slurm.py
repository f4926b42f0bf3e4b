"""How the built-in launcher ``slurm`` is checked: with a real Slurm of two nodes on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import slurm_cluster

KIND = "launcher"


class TwoNodes:
    """The programs are batch jobs here. Whoever launches finds the cluster by his environment."""

    runs_here = True
    patience_seconds = 60.0

    def __init__(self) -> None:
        if slurm_cluster.MISSING:
            pytest.skip(slurm_cluster.MISSING)
        self._held = slurm_cluster.cluster()
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> TwoNodes:
        environment = self._held.__enter__().environment
        self._before = {name: os.environ.get(name) for name in ("SLURM_CONF", "PATH")}
        os.environ.update({name: environment[name] for name in self._before})
        return self

    def __exit__(self, *exception: Any) -> None:
        for name, value in self._before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        self._held.__exit__(*exception)


EXAMPLES: dict[str, Callable[[Path], dict[str, Any]]] = {"slurm": lambda tmp_path: {"harness": TwoNodes}}
