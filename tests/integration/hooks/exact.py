"""Trainers whose numbers can be compared, and what they saw."""

import os
import random
import time
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import torch
from torch import nn

from hostcore_hookspecs import Capabilities, StepResult, hookimpl

#: What trainers and callbacks saw since the test began.
seen: list[Any] = []


class Required:
    """The three required methods and those with a default, and nothing else."""

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)

    def configure(self, ctx: Any) -> dict[str, Any]:
        model = nn.Linear(2, 1, dtype=torch.float64)
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> tuple[torch.Tensor, torch.Tensor]:
        column = {name: torch.tensor(raw_batch.column(name).to_pylist()).double() for name in ("a", "b", "y")}
        return torch.stack([column["a"], column["b"]], dim=1), column["y"].unsqueeze(1)

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        inputs, target = prepared_batch
        state["optimizer"].zero_grad()
        loss = ((state["model"](inputs) - target) ** 2).mean()
        loss.backward()
        state["optimizer"].step()
        return StepResult(metrics={"loss": loss.detach()})

    def state_dict(self, state: dict[str, Any]) -> dict[str, object]:
        return {"model": state["model"].state_dict(), "optimizer": state["optimizer"].state_dict()}

    def load_state_dict(self, state: dict[str, Any], payload: Mapping[str, Any], ctx: Any) -> None:
        state["model"].load_state_dict(payload["model"])
        state["optimizer"].load_state_dict(payload["optimizer"])


class Noisy(Required):
    """Draws from every global generator wherever it can, and has a part that stays in evaluation mode."""

    @attrs.define
    class State:
        model: nn.Module
        optimizer: Any
        parts: Mapping[str, nn.Module]

        def __getitem__(self, name: str) -> Any:
            return getattr(self, name)

    def configure(self, ctx: Any) -> State:
        frozen = nn.Dropout(0.5).eval()
        model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), frozen, nn.BatchNorm1d(8), nn.Linear(8, 1)).double()
        frozen.eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return self.State(model, optimizer, {"head": nn.Dropout(0.1)})

    def train_step(self, prepared_batch: Any, state: State, ctx: Any) -> StepResult:
        result = super().train_step(prepared_batch, state, ctx)
        return StepResult(metrics={**result.metrics, "noise": self._look_and_draw("train", state)})

    def validate_step(self, prepared_batch: Any, state: State, ctx: Any) -> StepResult:
        inputs, target = prepared_batch
        loss = ((state.model(inputs) - target) ** 2).mean()
        return StepResult(metrics={"loss": loss, "noise": self._look_and_draw("validate", state)})

    test_step = validate_step

    def generate_sample(self, state: State, step: int, request: Any, output_dir: str, ctx: Any) -> None:
        self._look_and_draw("sample", state)

    def _look_and_draw(self, where: str, state: State) -> float:
        modes = [state.model.training, *(part.training for part in (*state.model, state.parts["head"]))]
        seen.append((where, modes, torch.is_grad_enabled()))
        return random.random() + np.random.random() + torch.rand(()).item()


class AfterAStep(Noisy):
    """Draws, evaluates, and cannot validate before a step."""

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        result = super().validate_step(prepared_batch, state, ctx)
        1 / ctx.run_state.step
        return result


class Summing(Required):
    """Takes a step over all its micro-batches, normalised by all their rows."""

    CAPABILITIES = Capabilities(accumulate=True)

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        batches = prepared_batch if ctx.job.accumulate > 1 else (prepared_batch,)
        seen.append(len(batches))
        rows = sum(len(target) for _, target in batches)
        state["optimizer"].zero_grad()
        total = 0.0
        for inputs, target in batches:
            loss = ((state["model"](inputs) - target) ** 2).sum() / rows
            loss.backward()
            total += loss.detach()
        state["optimizer"].step()
        return StepResult(metrics={"loss": total})


class Weighing(Required):
    """Reports the mean of ``y`` for each batch of an evaluation, with the sum of ``weight`` as its weight."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: Report without a weight.
        plain: bool = False

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return raw_batch.to_pydict()

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        return StepResult(metrics={"loss": 0.0})

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        rows = prepared_batch["y"]
        weight = None if ctx.hyperparams.plain else sum(prepared_batch["weight"])
        metrics = {"loss": sum(rows) / len(rows), "deep/first": torch.tensor(rows[0], dtype=torch.float64)}
        return StepResult(metrics=metrics, weight=weight)

    test_step = validate_step


class Ranging(Weighing):
    """Reports the range of ``y`` over an evaluation, which is no mean over its batches."""

    @attrs.frozen(kw_only=True)
    class Hyperparams(Weighing.Hyperparams):
        #: What its ``evaluation_metrics`` returns in its place, by name; ``raise`` and ``text`` are what they say.
        instead: str = ""
        #: Report nothing else.
        alone: bool = False
        #: Rows that ``evaluation_metrics`` needs; it keeps those that it has until there are as many.
        rows: int = 0

    def configure(self, ctx: Any) -> dict[str, Any]:
        return {**super().configure(ctx), "seen": []}

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        state["seen"] += prepared_batch["y"]
        return StepResult() if ctx.hyperparams.alone else super().validate_step(prepared_batch, state, ctx)

    test_step = validate_step

    def evaluation_metrics(self, state: Any, ctx: Any) -> Any:
        low, high, number = min(state["seen"]), max(state["seen"]), len(state["seen"])
        if number < ctx.hyperparams.rows:
            raise ValueError(f"{number} rows are too few")
        state["seen"].clear()
        if ctx.hyperparams.instead == "raise":
            raise ValueError("the range is odd")
        gradients = float(torch.is_grad_enabled())
        instead = {
            "text": "0.5",
            "list": {"range": [low, high]},
            "taken": {"loss": high - low, "deep/first": low, "range": 1.0},
            "nan": {"range": float("nan"), "deep/high": high},
            "none": None,
            # A number that gets worse, step by step.
            "worse": {"range": 10.0 - ctx.run_state.step},
        }
        found = {"range": torch.tensor(high - low), "deep/rows": number, "gradients": gradients}
        return instead.get(ctx.hyperparams.instead, found)


class Mixed(Required):
    """Trains in the precision of the job; in fp16, the first gradients overflow."""

    CAPABILITIES = Capabilities(precisions=("fp32", "bf16", "fp16"))

    def configure(self, ctx: Any) -> dict[str, Any]:
        model = nn.Linear(2, 1)
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.0)}

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        inputs, _ = prepared_batch
        with ctx.autocast():
            output = state["model"](inputs.float())
        seen.append((ctx.dtype, output.dtype))
        loss = output.float().mean() / 100
        scaler = ctx.scaler
        if scaler is not None:
            state["optimizer"].zero_grad()
            factor = float("inf") if ctx.run_state.step == 0 else 1.0
            scaler.scale(loss * factor).backward()
            scaler.step(state["optimizer"])
            scaler.update()
        return StepResult(metrics={"loss": loss.detach(), "scale": 0.0 if scaler is None else scaler.get_scale()})


class Sized(Required):
    """Has as many weights as its hyperparameters say."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        width: int = 2

    def configure(self, ctx: Any) -> dict[str, Any]:
        model = nn.Linear(2, ctx.hyperparams.width, dtype=torch.float64)
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        return StepResult(metrics={"loss": 0.0})


class Hanging(Sized):
    """Says who it is, and then never comes back from a validation."""

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        print(f"process {os.getpid()} hangs")
        while True:
            time.sleep(0.02)


class Announce:
    """A callback that prints what it is called for."""

    def on_train_begin(self) -> None:
        print("on_train_begin")

    def on_train_end(self) -> None:
        print("on_train_end")

    def on_batch_end(self) -> None:
        print("on_batch_end")

    def on_validation_begin(self, run_state: Any) -> None:
        print(f"on_validation_begin at step {run_state.step}")

    def on_validation_end(self, metrics: Mapping[str, float]) -> None:
        print(f"on_validation_end {sorted(metrics)}")

    def on_test_begin(self, run_state: Any) -> None:
        print(f"on_test_begin at step {run_state.step} of epoch {run_state.epoch}")

    def on_test_end(self, metrics: Mapping[str, float]) -> None:
        print(f"on_test_end {sorted(metrics)}")

    def on_checkpoint_saved(self) -> None:
        print("on_checkpoint_saved")

    def on_stop_requested(self) -> None:
        print("on_stop_requested")


class Remember:
    """A callback that keeps what it sees of the metrics."""

    def on_validation_begin(self, run_state: Any) -> None:
        seen.append(("begin", dict(run_state.metrics)))

    def on_validation_end(self, metrics: Mapping[str, float], run_state: Any) -> None:
        history = {name: [tuple(point) for point in points] for name, points in run_state.history.items()}
        seen.append(("end", dict(metrics), dict(run_state.metrics), history))


class Records:
    """Records metrics of its own, in the hooks that it is told."""

    @attrs.frozen(kw_only=True)
    class Settings:
        #: By hook, the names; the value is the number of the step, counted from the hook.
        names: Mapping[str, tuple[str, ...]]
        #: What is recorded in place of the number.
        instead: str = ""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def _record(self, hook: str, ctx: Any) -> None:
        for name in self.settings.names.get(hook, ()):
            step = float(ctx.run_state.step)
            instead = {"text": "much", "tensor": torch.tensor(step), "nan": float("nan")}
            ctx.record(name, instead.get(self.settings.instead, step))

    def on_train_begin(self, ctx: Any) -> None:
        self._record("on_train_begin", ctx)

    def on_epoch_begin(self, ctx: Any) -> None:
        self._record("on_epoch_begin", ctx)

    def on_batch_begin(self, ctx: Any) -> None:
        self._record("on_batch_begin", ctx)

    @hookimpl(wrapper=True)
    def prepare_batch(self, ctx: Any) -> Any:
        batch = yield
        self._record("prepare_batch", ctx)
        return batch

    @hookimpl(wrapper=True)
    def train_step(self, ctx: Any) -> Any:
        result = yield
        self._record("train_step", ctx)
        return result

    def on_batch_end(self, ctx: Any) -> None:
        self._record("on_batch_end", ctx)

    def on_validation_end(self, ctx: Any) -> None:
        self._record("on_validation_end", ctx)

    def on_checkpoint_saved(self, ctx: Any) -> None:
        self._record("on_checkpoint_saved", ctx)

    def on_train_end(self, ctx: Any) -> None:
        self._record("on_train_end", ctx)


class RecordsToo(Records):
    """Another one."""
