"""What ``user_modules.py`` has, run by hostcore. Tests and jobs find it, and what is beside it, by their names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hostcore.in_process import run as run_here

sys.path.insert(0, str(Path(__file__).parent))
from lit_jobs import job

if TYPE_CHECKING:
    from lit_watch import Watch


@pytest.fixture
def by_hostcore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Watch]:
    """What a run in this process does with a module."""
    from lit_watch import WATCHED

    monkeypatch.chdir(tmp_path)

    def run(module: str, **keys: Any) -> Watch:
        given = job(module, **keys)
        given["hyperparams"]["callbacks"] = [*given["hyperparams"].get("callbacks", ()), {"use": "lit_watch:Watch"}]
        before = len(WATCHED)
        result = run_here(given)
        assert result.status == "succeeded", result.error
        assert len(WATCHED) == before + 1
        return WATCHED[-1]

    return run
