"""A trainer whose loss follows a curve that is known beforehand, on any number of ranks; it says where it runs."""

import sys
import time
from pathlib import Path
from typing import Any

import attrs
import torch
import torch.distributed as dist

from hostcore_hookspecs import Capabilities, StepResult

RATE = 0.01


def curve(steps: int) -> list[float]:
    """The loss of each step."""
    weight, losses = 0.0, []
    for _ in range(steps):
        losses.append((weight - 3.0) ** 2)
        weight -= RATE * 2 * (weight - 3.0)
    return losses


class Trainer:
    """Moves a number towards 3, all ranks together."""

    CAPABILITIES = Capabilities(distributed=True, accumulate=True)

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: Of every step.
        seconds: float = 0.0
        #: The step that fails; 0: none does.
        fails_at: int = 0
        #: From the middle on it waits for this file, some seconds in each step; empty: it does not.
        until: str = ""

    def setup(self, ctx: Any) -> None:
        print(sys.executable, flush=True)
        torch.set_num_threads(1)

    def configure(self, ctx: Any) -> dict[str, Any]:
        return {"weight": torch.zeros((), dtype=torch.float64)}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return raw_batch

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        time.sleep(ctx.hyperparams.seconds)
        if ctx.run_state.step + 1 == ctx.hyperparams.fails_at:
            raise ValueError(f"step {ctx.hyperparams.fails_at} is not for me")
        if ctx.hyperparams.until and ctx.run_state.step >= ctx.run_state.total_steps // 2:
            self._wait(ctx)
        loss, gradient = (state["weight"] - 3.0) ** 2, 2 * (state["weight"] - 3.0)
        if ctx.world_size > 1:
            dist.all_reduce(gradient)
            gradient /= ctx.world_size
        state["weight"] -= RATE * gradient
        return StepResult(metrics={"loss": loss})

    def _wait(self, ctx: Any) -> None:
        """Wait until all ranks go on together; not for ever, since several ranks agree on a stop between two steps."""
        goes_on, end = torch.zeros(()), time.monotonic() + 5
        while not goes_on:
            is_over = Path(ctx.hyperparams.until).exists() or ctx.is_canceled() or time.monotonic() > end
            goes_on = torch.tensor(float(is_over))
            if ctx.world_size > 1:
                dist.all_reduce(goes_on)
            time.sleep(0.01)

    def state_dict(self, state: dict[str, Any]) -> dict[str, Any]:
        return dict(state)

    def load_state_dict(self, state: dict[str, Any], payload: Any) -> None:
        state.update(payload)
