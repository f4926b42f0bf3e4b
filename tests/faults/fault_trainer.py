"""A trainer with everything that makes a resume hard: dropout, noise of three generators, AdamW, a schedule."""

import random
import time
from typing import Any

import attrs
import numpy as np
import torch

from hostcore_hookspecs import StepResult
from hostcore_toolkit import to_tensors


class Trainer:
    """Fits noise."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: Of a layer; the state takes about 100 bytes for each.
        width: int = 8
        #: Of every step.
        seconds: float = 0.0

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)  # the model is small, and the machine may be busy

    def configure(self, ctx: Any) -> dict[str, Any]:
        width = ctx.hyperparams.width
        model = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.Dropout(0.5), torch.nn.Linear(width, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
        return {"model": model, "optimizer": optimizer, "scheduler": scheduler}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        tensors = to_tensors(raw_batch)
        noise = float(np.random.rand()) + random.random()
        return torch.stack([tensors["x"] + noise, tensors["y"]], 1), tensors["y"]

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        inputs, target = prepared_batch
        error = ((state["model"](inputs).squeeze(1) - target) ** 2).mean()
        state["optimizer"].zero_grad()
        error.backward()
        state["optimizer"].step()
        state["scheduler"].step()
        time.sleep(ctx.hyperparams.seconds)
        return StepResult(metrics={"error": error.detach()})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in state.items()}

    def load_state_dict(self, state: Any, payload: Any) -> None:
        for name, part in state.items():
            part.load_state_dict(payload[name])

    def save_checkpoint(self, state: Any, step: int, output_dir: str, final: bool, ctx: Any) -> None:
        torch.save(state["model"].state_dict(), f"{output_dir}/model.pt")
