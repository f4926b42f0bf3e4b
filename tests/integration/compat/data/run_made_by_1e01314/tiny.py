"""A trainer whose state is the sum of what it has seen."""

import os

import torch

from hostcore_hookspecs import StepResult


class Trainer:
    def configure(self, ctx):
        return {"seen": torch.zeros(2, dtype=torch.float64)}

    def prepare_batch(self, raw_batch, state, ctx):
        return torch.tensor(raw_batch.column(0).to_pylist(), dtype=torch.float64)

    def train_step(self, prepared_batch, state, ctx):
        if state["seen"][0] == 4 and os.environ.get("TINY_FAILS"):
            raise RuntimeError("asked to fail")
        state["seen"] += torch.tensor([1.0, float(prepared_batch.sum())])
        return StepResult(metrics={"seen": float(state["seen"][1])})

    def validate_step(self, prepared_batch, state, ctx):
        return StepResult(metrics={"seen": float(state["seen"][1])})

    def state_dict(self, state):
        return {"seen": state["seen"]}

    def load_state_dict(self, state, payload):
        state["seen"].copy_(payload["seen"])
