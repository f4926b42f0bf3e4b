"""Uses a new argument of an old hook, a new hook, and a new field."""

import json
import os
from pathlib import Path
from typing import Any

from hostcore_hookspecs import RunState, StepContext, StepResult

Path(os.environ["WITNESS"], "made_for_1_1.imported").touch()


class SecondTrainer:
    """Counts."""

    def setup(self, ctx: StepContext) -> None:
        pass

    def configure(self, ctx: StepContext) -> dict[str, Any]:
        return {"positions": []}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: StepContext) -> Any:
        return raw_batch

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: StepContext, position: int) -> StepResult:
        state["positions"].append(position)
        return StepResult(metrics={"loss": 1.0}, note="a field of 1.1")

    def state_dict(self, state: dict[str, Any]) -> dict[str, object]:
        return dict(state)

    def load_state_dict(self, state: dict[str, Any], payload: dict[str, Any], ctx: StepContext) -> None:
        state.update(payload)


class SecondListener:
    """Notes what it is told at the end."""

    def on_train_end(self, run_state: RunState, ctx: StepContext, *, seconds: float | None) -> None:
        Path(os.environ["WITNESS"], "listener.json").write_text(json.dumps({"seconds": seconds}))

    def on_run_archived(self, run_state: RunState) -> None:
        raise AssertionError("the host of these tests is older than this hook, and never calls it")
