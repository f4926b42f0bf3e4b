"""Settings for the built-in callbacks, with which they have something to do in six steps of the kit's own job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any


def _with(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {"settings": dict(settings)}


EXAMPLES: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "best-checkpoint": partial(_with, {}),
    # Further away than the kit runs.
    "chaos": partial(_with, {"faults": ["kill@step=1000000"]}),
    "csv-metrics": partial(_with, {}),
    # The wrong way round: it is disappointed at once, and ends with the weights of the first validation.
    "early-stopping": partial(_with, {"patience": 2, "mode": "max"}),
    "grad-clip": partial(_with, {"max_norm": 0.1}),
    "lr-monitor": partial(_with, {"momentum": True}),
    "nonfinite-guard": partial(_with, {}),
    "oom-hint": partial(_with, {}),
    "profiler": partial(_with, {"start_step": 2, "warmup": 1, "steps": 2}),
    "throughput": partial(_with, {}),
}
