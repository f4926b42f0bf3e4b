"""A trainer with everything that makes a resume hard: dropout, noise of three generators, AdamW, a schedule."""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np
import torch

from hostcore_hookspecs import StepResult
from hostcore_toolkit import to_tensors

#: The step in which a machine is taken away; 0: none. Not a setting, since it must not make another job.
PREEMPT_AT = 0
#: The step in which there is no memory left; 0: none.
DIE_AT = 0
#: A step, and how many seconds it takes longer than others.
REST = (0, 0.0)
#: The weights of every run, when it ended.
WEIGHTS: dict[str, dict[str, torch.Tensor]] = {}
#: The rows of every step of a run, by step; of a step that was trained twice, the last.
SAMPLES: dict[str, dict[int, list[float]]] = {}
#: What ``Average`` had seen when a run ended.
AVERAGES: dict[str, tuple[int, float]] = {}


@contextmanager
def dying(at: int, *, rest: tuple[int, float] = (0, 0.0)) -> Iterator[None]:
    """Runs have no memory left in a step, and rest in another."""
    global DIE_AT, REST
    DIE_AT, REST = at, rest
    yield
    DIE_AT, REST = 0, (0, 0.0)


class Trainer:
    """Fits noise."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        lr: float = 0.05

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)  # the model is small, and the machine may be busy
        random.random()  # what is drawn here must not matter after a resume

    def configure(self, ctx: Any) -> dict[str, Any]:
        model = torch.nn.Sequential(
            torch.nn.Linear(2, 8), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=ctx.hyperparams.lr)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=18)
        return {"model": model, "optimizer": optimizer, "scheduler": scheduler}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        tensors = to_tensors(raw_batch)
        SAMPLES.setdefault(ctx.job.run_id, {})[ctx.run_state.step + 1] = tensors["x"].tolist()
        noise = float(np.random.rand()) + random.random()
        return torch.stack([tensors["x"] + noise, tensors["y"]], 1), tensors["y"]

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        inputs, target = prepared_batch
        error = ((state["model"](inputs).squeeze(1) - target) ** 2).mean()
        state["optimizer"].zero_grad()
        error.backward()
        state["optimizer"].step()
        state["scheduler"].step()
        if ctx.run_state.step + 1 == REST[0]:
            time.sleep(REST[1])
        if ctx.run_state.step + 1 == DIE_AT:
            raise MemoryError
        if ctx.run_state.step + 1 == PREEMPT_AT:
            os.kill(os.getpid(), signal.SIGTERM)
        return StepResult(metrics={"error": error.detach(), "lr": state["scheduler"].get_last_lr()[0]})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in state.items()}

    def load_state_dict(self, state: Any, payload: Any) -> None:
        for name, part in state.items():
            part.load_state_dict(payload[name])

    def teardown(self, state: Any, ctx: Any) -> None:
        WEIGHTS[ctx.job.run_id] = {name: value.clone() for name, value in state["model"].state_dict().items()}


class Average:
    """A callback with a state: an average over all batches that also draws from a generator."""

    def __init__(self) -> None:
        self._count, self._value = 0, 0.0

    def on_epoch_begin(self) -> None:
        self._value += float(torch.rand(())) + random.random()

    def on_epoch_end(self) -> None:
        self._value += float(torch.rand(())) + random.random()

    def on_batch_end(self, result: Any, run_state: Any) -> None:
        self._count += 1
        self._value = 0.9 * self._value + float(result.metrics["error"]) + float(torch.rand(()))

    def on_train_end(self, ctx: Any) -> None:
        AVERAGES[ctx.job.run_id] = (self._count, self._value)

    def callback_state(self) -> dict[str, Any]:
        return {"count": self._count, "value": self._value}

    def load_callback_state(self, payload: Any) -> None:
        self._count, self._value = payload["count"], payload["value"]
