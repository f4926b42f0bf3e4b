"""A trainer whose steps cost nothing, and which waits where a test wants it to."""

import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from hostcore_hookspecs import StepResult


class Trainer:
    """Counts."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: Files by step: after so many steps, the training waits until the file is there.
        gates: Mapping[str, str] = attrs.field(factory=dict)
        #: Of every step.
        seconds: float = 0.0
        #: Of the file that each checkpoint has beside the state; its content differs from step to step.
        weights_bytes: int = 1000

    def setup(self, ctx: Any) -> None:
        """Nothing to prepare."""

    def configure(self, ctx: Any) -> dict[str, Any]:
        return {"step": 0}

    def prepare_batch(self, raw_batch: Any) -> Any:
        return raw_batch

    def train_step(self, state: Any, ctx: Any) -> StepResult:
        gate = ctx.hyperparams.gates.get(str(state["step"]))
        while gate is not None and not Path(gate).exists():
            time.sleep(0.01)
        time.sleep(ctx.hyperparams.seconds)
        state["step"] += 1
        return StepResult(metrics={"loss": 1 / state["step"]})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return dict(state)

    def load_state_dict(self, state: Any, payload: Any) -> None:
        state.update(payload)

    def save_checkpoint(self, state: Any, step: int, output_dir: str, final: bool, ctx: Any) -> None:
        weights = random.Random(step).randbytes(ctx.hyperparams.weights_bytes)
        Path(output_dir, "weights.bin").write_bytes(weights)
