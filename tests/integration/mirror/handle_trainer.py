"""A trainer that learns nothing, and says what it finds in ``ctx.model_handles``."""

from pathlib import Path
from typing import Any

from hostcore_hookspecs import StepResult


class Trainer:
    def setup(self, ctx: Any) -> None:
        for name, path in sorted(ctx.model_handles.items()):
            place = Path(path)
            files = sorted(place.rglob("*")) if place.is_dir() else [place]
            read = {one.name: one.read_text() for one in files if one.is_file()}
            print(f"handle {name}: {place.is_absolute()} {place.name} {read}")

    def configure(self, ctx: Any) -> dict[str, Any]:
        return {}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return raw_batch

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        return StepResult(metrics={"loss": 1.0})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any, payload: Any, ctx: Any) -> None:
        return
