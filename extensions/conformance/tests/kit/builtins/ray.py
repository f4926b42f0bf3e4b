"""How the built-in launcher ``ray`` is checked: with a real cluster on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray_cluster

KIND = "launcher"


class OneNode:
    """The programs are jobs of a cluster here, which takes a second or two for each."""

    runs_here = True
    patience_seconds = 60.0

    def __init__(self) -> None:
        if ray_cluster.MISSING:
            pytest.skip(ray_cluster.MISSING)
        self._held = ray_cluster.cluster(cpus=4)
        self._cluster: Any = None

    def __enter__(self) -> OneNode:
        self._cluster = self._held.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._held.__exit__(*exception)

    @property
    def settings(self) -> dict[str, Any]:
        """Where the cluster is."""
        token = self._cluster.folder / "token"
        return {"address": self._cluster.address, "token": {"$secret": f"file:{token}"}}


EXAMPLES: dict[str, Callable[[Path], dict[str, Any]]] = {"ray": lambda tmp_path: {"harness": OneNode}}
