"""A trainer whose ranks meet in every step, and of which one misbehaves where its hyperparameters say so."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import torch
import torch.distributed as dist

from hostcore_hookspecs import Capabilities, StepResult


class Trainer:
    """Adds up the ranks' numbers."""

    CAPABILITIES = Capabilities(distributed=True)

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: Whether rank 1 fails in step 7.
        fails: bool = False
        #: Of every step.
        seconds: float = 0.0
        #: From the middle on, each step waits for this file, for two seconds at most; empty: none does.
        until: str = ""

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)
        print(f"hello from rank {ctx.rank} of {ctx.world_size}")
        print(f"a word on standard error of rank {ctx.rank}", file=sys.stderr)

    def configure(self, ctx: Any) -> dict[str, Any]:
        return {"total": torch.zeros(())}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return raw_batch

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        wishes, step = ctx.hyperparams, ctx.run_state.step + 1
        if wishes.fails and (step, ctx.rank) == (7, 1):
            raise ValueError(f"rank {ctx.rank} has exploded")
        if step == 3:
            self._tell(ctx)
        time.sleep(wishes.seconds)
        if wishes.until and ctx.run_state.step >= ctx.run_state.total_steps // 2:
            self._wait(ctx)
        number = torch.tensor(float(ctx.rank + 1))
        dist.all_reduce(number)
        state["total"] += number
        return StepResult(metrics={"total": state["total"], "rank": float(ctx.rank)})

    def _wait(self, ctx: Any) -> None:
        """All ranks go on together. Not for ever: they agree on a stop between two steps."""
        for _ in range(200):
            goes_on = torch.tensor(float(Path(ctx.hyperparams.until).exists()))
            dist.all_reduce(goes_on)
            if goes_on:
                return
            time.sleep(0.01)

    def state_dict(self, state: dict[str, Any]) -> dict[str, Any]:
        return dict(state)

    def load_state_dict(self, state: dict[str, Any], payload: Any) -> None:
        state.update(payload)

    def _tell(self, ctx: Any) -> None:
        """Say in a file which process this is, whole or not at all."""
        path = Path(f"{ctx.job.run_id}.rank-{ctx.rank}.pid")
        path.with_suffix(".tmp").write_text(str(os.getpid()))
        path.with_suffix(".tmp").rename(path)
