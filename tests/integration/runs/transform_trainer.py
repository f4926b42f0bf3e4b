"""Trainers with a ``transform_batch`` that augments. No torch, so that processes are ready soon."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from hostcore_hookspecs import InvalidData, StepResult

#: The weights of every run, when it ended.
WEIGHTS: dict[str, bytes] = {}


class Plain:
    """Fits noise, with noise of its own that only the loop draws."""

    def setup(self, ctx: Any) -> None:
        Path(f"{ctx.job.run_id}.pid").write_text(str(os.getpid()))

    def configure(self) -> Any:
        return {"weights": np.zeros(2)}

    def prepare_batch(self, raw_batch: Any) -> Any:
        return raw_batch

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        time.sleep(ctx.hyperparams.get("seconds", 0))
        errors = prepared_batch["inputs"] @ state["weights"] - prepared_batch["target"] + np.random.rand()
        state["weights"] = state["weights"] - 0.05 * errors @ prepared_batch["inputs"] / len(errors)
        return StepResult(metrics={"error": float((errors**2).mean())})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return dict(state)

    def load_state_dict(self, state: Any, payload: Any) -> None:
        state.update(payload)

    def teardown(self, state: Any, ctx: Any) -> None:
        WEIGHTS[ctx.job.run_id] = state["weights"].tobytes()


class Augments(Plain):
    """Adds noise to the inputs, or fails at a batch."""

    calls = 0

    def transform_batch(self, raw_batch: Any, rng: np.random.Generator, ctx: Any) -> Any:
        self.calls += 1
        if self.calls == ctx.hyperparams.get("fail_at"):
            raise {"ValueError": ValueError, "InvalidData": InvalidData}[ctx.hyperparams["error"]]("a bad pixel")
        x, y = raw_batch["x"].to_numpy(), raw_batch["y"].to_numpy()
        return {"inputs": np.stack([x, y], 1) + rng.normal(0, 0.1, (len(x), 2)), "target": y}
