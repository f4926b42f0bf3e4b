"""A trainer, a callback that wraps it, and a reporter. They know nothing of later contracts."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from hostcore_hookspecs import Event, Job, RunState, StepContext, StepResult, hookimpl


class Base:
    """What another trainer inherits from, and calls."""

    def train_step(self, prepared_batch: torch.Tensor, state: Any, ctx: StepContext) -> StepResult:
        model, momenta = state
        loss = model(prepared_batch[:, :1]).sub(prepared_batch[:, 1:]).square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for weight, momentum, gradient in zip(model.parameters(), momenta, gradients, strict=True):
                momentum.mul_(0.9).add_(gradient)
                weight.sub_(0.05 * momentum)
        return StepResult(metrics={"loss": loss.detach()})


class FirstTrainer(Base):
    """A linear model with dropout, so that a random state that is off by one would show."""

    def setup(self, ctx: StepContext) -> None:
        pass

    def configure(self, ctx: StepContext) -> Any:
        model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
        # Not an optimizer of torch, the first of which takes seconds to import.
        return model, [torch.zeros_like(weight) for weight in model.parameters()]

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: StepContext) -> torch.Tensor:
        return torch.tensor([raw_batch["x"].to_pylist(), raw_batch["y"].to_pylist()]).T

    def train_step(self, prepared_batch: torch.Tensor, state: Any, ctx: StepContext) -> StepResult:
        return super().train_step(prepared_batch, state, ctx)

    def state_dict(self, state: Any) -> dict[str, object]:
        model, momenta = state
        return {"model": model.state_dict(), "momenta": momenta}

    def load_state_dict(self, state: Any, payload: dict[str, Any], ctx: StepContext) -> None:
        state[0].load_state_dict(payload["model"])
        for momentum, saved in zip(state[1], payload["momenta"], strict=True):
            momentum.copy_(saved)


class FirstWrapper:
    """Wraps the trainer's step with the arguments that 1.0 had, and listens."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    @hookimpl(wrapper=True)
    def train_step(self, prepared_batch: torch.Tensor, state: Any, ctx: StepContext) -> Iterator[None]:
        result = yield
        self.losses.append(float(result.metrics["loss"]))
        return result

    def on_train_end(self, run_state: RunState, ctx: StepContext) -> None:
        Path(os.environ["WITNESS"], "wrapper.json").write_text(json.dumps([run_state.step, self.losses]))

    def select_device(self, job: Job) -> str | None:
        return "cpu"


class FirstReporter:
    """Notes the names of all events."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def report_event(self, event: Event) -> None:
        self.names.append(event.name)

    def close(self) -> None:
        Path(os.environ["WITNESS"], "reporter.json").write_text(json.dumps(self.names))
