"""A trainer of one weight that validates, samples and tests, and a callback that notes hooks; both can be stopped."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch

from hostcore_hookspecs import Best, Capabilities, StepResult
from hostcore_toolkit import to_tensors

#: Where SIGTERM comes, once each: a method and the step that is done then.
STOPS: list[tuple[str, int]] = []
#: Hooks of the run, over all attempts; not those that an attempt begins and ends with.
HOOKS: list[str] = []
#: Weights in the test, by run.
TESTED: dict[str, float] = {}


def reach(place: str, step: int) -> None:
    """Come to a place, where a signal may be waiting."""
    if (place, step) in STOPS:
        STOPS.remove((place, step))
        os.kill(os.getpid(), signal.SIGTERM)


class Trainer:
    """Its weight goes up, and the validation finds it best at one step."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: The step at which the validation is best.
        best: int = 6

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)

    def configure(self, ctx: Any) -> dict[str, torch.Tensor]:
        return {"weight": torch.zeros(())}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return to_tensors(raw_batch)["x"]

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        state["weight"] += 1 + torch.rand(()) / 100 + prepared_batch.mean() / 1000
        reach("train_step", ctx.run_state.step + 1)
        return StepResult(metrics={"loss": state["weight"].clone()})

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        reach("validate_step", ctx.run_state.step)
        distance = abs(ctx.run_state.step - ctx.hyperparams.best)
        return StepResult(metrics={"loss": distance + torch.rand(()) / 10, "weight": state["weight"].clone()})

    def generate_sample(self, state: Any, step: int, request: Any, output_dir: str, ctx: Any) -> None:
        reach(f"sample {request.prompt}", step)
        Path(output_dir, "text").write_text(f"{request.prompt} {float(state['weight'])} {float(torch.rand(()))}")

    def test_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        reach("test_step", ctx.run_state.step)
        TESTED[ctx.job.run_id] = float(state["weight"])
        return StepResult(metrics={"weight": state["weight"].clone()})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return dict(state)

    def load_state_dict(self, state: Any, payload: Any) -> None:
        state["weight"].copy_(payload["weight"])


class StopsOneRank(Trainer):
    """Its last rank alone gets SIGTERM, in the validation of the step that the environment names, once."""

    CAPABILITIES = Capabilities(distributed=True)

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        state["weight"] += 1  # the same on all ranks
        return StepResult(metrics={"loss": state["weight"].clone()})

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        marker = Path(f"{ctx.job.run_id}.stopped")
        at_it = ctx.run_state.step == int(os.environ["STOP_AT"]) and ctx.batch_index == 0
        if at_it and ctx.rank == ctx.world_size - 1 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGTERM)
        return super().validate_step(prepared_batch, state, ctx)


class Waits(Trainer):
    """Waits in the validation of step 6 to be stopped, once."""

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        marker = Path(f"{ctx.job.run_id}.waits")
        if ctx.run_state.step == 6 and not marker.exists() and "WAITS" in os.environ:
            marker.touch()
            while not ctx.is_canceled():
                time.sleep(0.01)
        return super().validate_step(prepared_batch, state, ctx)


class Watch:
    """Notes hooks and keeps a state; a validation that was cut counts as none."""

    def __init__(self) -> None:
        self._validated, self._ended = 0, 0

    def on_epoch_begin(self, run_state: Any) -> None:
        HOOKS.append(f"epoch {run_state.epoch} begins")

    def on_epoch_end(self, run_state: Any, ctx: Any) -> None:
        self._ended += 1
        HOOKS.append(f"epoch {run_state.epoch} ends, the {self._ended}.")
        reach("on_epoch_end", run_state.step)

    def on_batch_end(self, run_state: Any) -> None:
        HOOKS.append(f"step {run_state.step}")
        reach("on_batch_end", run_state.step)

    def on_validation_begin(self, run_state: Any) -> None:
        reach("on_validation_begin", run_state.step)

    def on_validation_end(self, metrics: Mapping[str, float], run_state: Any, ctx: Any) -> None:
        self._validated += 1
        HOOKS.append(f"validation of step {run_state.step}, the {self._validated}., {metrics}")
        reach("on_validation_end", run_state.step)

    def on_sample_saved(self, sample: Any) -> None:
        HOOKS.append(f"sample {sample.request.prompt} of step {sample.step}")

    def on_test_begin(self, run_state: Any) -> None:
        reach("on_test_begin", run_state.step)

    def callback_state(self) -> dict[str, Any]:
        return {"validated": self._validated, "ended": self._ended}

    def load_callback_state(self, payload: Any) -> None:
        self._validated, self._ended = payload["validated"], payload["ended"]


class GoBack:
    """Asks at the beginning of the validation of step 6 to go back to step 3."""

    CHANGES_TRAINING = True

    def on_validation_begin(self, run_state: Any, ctx: Any) -> None:
        if run_state.step == 3:
            ctx.request_best(Best(metric="mine", value=1.0, step=3))
        if run_state.step == 6 and not any(one.step == 6 for one in run_state.checkpoints):
            ctx.request_restore(3, "for the test")
