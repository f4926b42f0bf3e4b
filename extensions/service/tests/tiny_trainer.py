"""A trainer that the service's tests submit by its registered name, ``tiny``."""

import os
import time
from pathlib import Path
from typing import Any

import attrs
import torch

from hostcore_hookspecs import StepResult


class Trainer:
    """Finds the square root of 2."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: Of every step.
        seconds: float = 0.0
        #: Raises in this step; 0: never.
        fail_at: int = 0
        #: In the middle it waits for this file in the folder ``HOSTCORE_TEST_LEDGER``; empty: it does not.
        until: str = ""

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)
        print("hello from the trainer")

    def configure(self, ctx: Any) -> dict[str, torch.Tensor]:
        return {"x": torch.tensor(3.0)}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return raw_batch

    def train_step(self, prepared_batch: Any, state: dict[str, torch.Tensor], ctx: Any) -> StepResult:
        wishes = ctx.hyperparams
        if ctx.run_state.step + 1 == wishes.fail_at:
            raise ValueError("the loss has exploded")
        time.sleep(wishes.seconds)
        if wishes.until and ctx.run_state.step == ctx.run_state.total_steps // 2:
            go_on = Path(os.environ["HOSTCORE_TEST_LEDGER"], wishes.until)
            while not go_on.exists() and not ctx.is_canceled():
                time.sleep(0.01)
        state["x"] = (state["x"] + 2 / state["x"]) / 2
        return StepResult(metrics={"loss": (state["x"] ** 2 - 2) ** 2})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return dict(state)

    def load_state_dict(self, state: Any, payload: Any) -> None:
        state.update(payload)
