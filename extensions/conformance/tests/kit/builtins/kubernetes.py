"""How the built-in launchers for Kubernetes are checked: with an emulated cluster that runs the pods here."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_emulator

KIND = "launcher"


class OneCluster:
    """The programs are pods, which run here; the folder of the runs is a volume at the same path."""

    runs_here = True
    patience_seconds = 20.0

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kubernetes-")
        self._held = kubernetes_emulator.cluster(Path(self._folder.name))
        self._cluster: Any = None

    def __enter__(self) -> OneCluster:
        self._cluster = self._held.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._held.__exit__(*exception)
        self._folder.cleanup()

    @property
    def settings(self) -> dict[str, Any]:
        """Where the cluster is, and what a pod is made from."""
        return {
            "kubeconfig": str(self._cluster.kubeconfig),
            "image": "registry.example/trainer:1",
            "python": sys.executable,
            "volume": "runs",
            "grace_margin_seconds": 5.0,
        }


EXAMPLES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "kubernetes-pytorchjob": lambda tmp_path: {"harness": OneCluster},
    "kubernetes-trainjob": lambda tmp_path: {"harness": OneCluster},
}
