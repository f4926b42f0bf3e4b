"""Whole runs in this process, with the trainers of this folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from played import Played, play


@pytest.fixture
def run_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Played]:
    """``run_job({…}, "oom-hint", hungry=3)``: a run of a job with callbacks and hyperparameters."""
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))

    def start(job: dict[str, Any], *callbacks: Any, **hyperparams: Any) -> Played:
        return play({"callbacks": list(callbacks), "hyperparams": hyperparams, **job}, tmp_path / "runs")

    return start
