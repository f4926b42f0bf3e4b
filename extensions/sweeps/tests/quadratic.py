"""A trainer that walks to 1, faster or slower, and whose every step draws from the random generator of the host."""

import random
import time
from pathlib import Path
from typing import Any

import attrs
import torch

from hostcore_hookspecs import Capabilities, StepResult


class Trainer:
    """Minimizes (x - 1)²; on several ranks each for itself."""

    CAPABILITIES = Capabilities(distributed=True)

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        lr: float = 0.1
        #: Of every step, until a file is there, which it waits for in the middle; empty: it does not.
        seconds: float = 0.0
        until: str = ""
        #: Raises in this step; 0: never.
        fail_at: int = 0
        #: Any value: choices and conditions are tried on it.
        kind: Any = "plain"
        momentum: float = 0.0

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)

    def configure(self, ctx: Any) -> dict[str, float]:
        return {"x": 3.0}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return raw_batch

    def train_step(self, prepared_batch: Any, state: dict[str, float], ctx: Any) -> StepResult:
        wishes = ctx.hyperparams
        if ctx.run_state.step + 1 == wishes.fail_at:
            raise ValueError("the loss has exploded")
        if not wishes.until or not Path(wishes.until).exists():
            time.sleep(wishes.seconds)
        if wishes.until and ctx.run_state.step == ctx.run_state.total_steps // 2:
            while not Path(wishes.until).exists() and not ctx.is_canceled():
                time.sleep(0.01)
        state["x"] -= wishes.lr * (2 * (state["x"] - 1) + 0.01 * random.random())
        return StepResult(metrics={"loss": (state["x"] - 1) ** 2, "distance": abs(state["x"] - 1)})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return dict(state)

    def load_state_dict(self, state: Any, payload: Any) -> None:
        state.update(payload)
