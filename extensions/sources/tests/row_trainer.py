"""A model of two weights, and the rows that it was given. Jobs name it; its process may be killed at a step, once."""

import os
import signal
from pathlib import Path
from typing import Any, ClassVar

import torch

from hostcore_hookspecs import StepResult
from hostcore_toolkit import to_tensors


class RowTrainer:
    #: The ids of all batches in this process, in order.
    seen: ClassVar[list[int]] = []

    def setup(self) -> None:
        self.steps = 0

    def configure(self) -> dict[str, Any]:
        model = torch.nn.Linear(2, 1)
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=1e-8, momentum=0.9), "steps": 0}

    def prepare_batch(self, raw_batch: Any) -> torch.Tensor:
        self.seen.extend(raw_batch.column("id").to_pylist())
        columns = to_tensors(raw_batch, ["id", "delay"])
        return torch.stack([columns["id"].float(), columns["delay"]], dim=1)

    def train_step(self, prepared_batch: torch.Tensor, state: dict[str, Any]) -> StepResult:
        loss = (state["model"](prepared_batch) - 1).square().mean()
        state["optimizer"].zero_grad()
        loss.backward()
        state["optimizer"].step()
        state["steps"] += 1
        mark = Path(os.environ.get("KILL_MARK", "none"))
        if str(state["steps"]) == os.environ.get("KILL_AT") and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return StepResult(metrics={"loss": loss.detach(), "first_id": float(prepared_batch[0, 0])})

    def state_dict(self, state: dict[str, Any]) -> dict[str, Any]:
        parts = {name: state[name].state_dict() for name in ("model", "optimizer")}
        return {**parts, "steps": state["steps"]}

    def load_state_dict(self, state: dict[str, Any], payload: dict[str, Any]) -> None:
        state["model"].load_state_dict(payload["model"])
        state["optimizer"].load_state_dict(payload["optimizer"])
        state["steps"] = payload["steps"]


def job(source: str, settings: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Two epochs of 25 steps each over the rows of ``source_examples``, shuffled."""
    return {
        "trainer": "row_trainer:RowTrainer",
        "dataset": {"source": source, **settings, "batch_size": 100, "shuffle": True},
        "epochs": 2,
        "seed": 3,
        "metric_every": 1,
        "device": "cpu",
        "terminal": False,
        **keys,
    }
