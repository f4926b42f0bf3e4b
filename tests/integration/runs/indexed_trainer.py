"""A trainer that notes which batch it is given, as its context says. No torch, so that processes are ready soon."""

from typing import Any

import numpy as np

from hostcore_hookspecs import Capabilities, StepResult

#: ``(method, split, batch index)``, in the order of the calls.
SEEN: list[tuple[str, str, int]] = []


class Trainer:
    """Learns nothing."""

    CAPABILITIES = Capabilities(accumulate=True)

    def setup(self) -> None: ...

    def configure(self) -> Any:
        return {"sum": 0.0}

    def transform_batch(self, raw_batch: Any, rng: np.random.Generator, ctx: Any) -> Any:
        assert ctx.rng is rng
        return {"place": (ctx.split, ctx.batch_index), "drawn": rng.random()}

    def prepare_batch(self, raw_batch: Any, ctx: Any) -> Any:
        SEEN.append(("prepare_batch", ctx.split, ctx.batch_index))
        assert raw_batch["place"] == (ctx.split, ctx.batch_index), "transformed as another one"
        return raw_batch["drawn"] + ctx.rng.random()

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        SEEN.append(("train_step", ctx.split, ctx.batch_index))
        drawn = prepared_batch if isinstance(prepared_batch, tuple) else (prepared_batch,)
        state["sum"] += sum(drawn) * (ctx.batch_index + 1) + ctx.rng.random()
        return StepResult(metrics={"loss": state["sum"]})

    def validate_step(self, ctx: Any) -> StepResult:
        SEEN.append(("validate_step", ctx.split, ctx.batch_index))
        return StepResult(metrics={"loss": ctx.rng.random()})

    def test_step(self, ctx: Any) -> StepResult:
        SEEN.append(("test_step", ctx.split, ctx.batch_index))
        return StepResult(metrics={"loss": 0.0})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return dict(state)

    def load_state_dict(self, state: Any, payload: Any) -> None:
        state.update(payload)


class Notes:
    """Notes what the context says between the batches."""

    def on_batch_end(self, ctx: Any) -> None:
        SEEN.append(("on_batch_end", ctx.split, ctx.batch_index))

    def on_validation_end(self, ctx: Any) -> None:
        SEEN.append(("on_validation_end", ctx.split, ctx.batch_index))
