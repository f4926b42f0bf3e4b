"""A trainer whose validation metrics are no means over batches: those of torchmetrics, computed over all ranks."""

from typing import Any

import attrs
import torch
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC, BinaryF1Score

from hostcore_hookspecs import Capabilities, StepResult
from hostcore_toolkit import to_tensors


class Trainer:
    """Learns nothing, and ranks the rows."""

    CAPABILITIES = Capabilities(distributed=True)

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: What a rank does in ``evaluation_metrics``: ``raise:1``.
        does: str = ""

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)

    def configure(self, ctx: Any) -> dict[str, Any]:
        metrics = MetricCollection({"accuracy": BinaryAccuracy(), "f1": BinaryF1Score(), "auroc": BinaryAUROC()})
        return {"model": nn.Linear(1, 1), "metrics": metrics}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return to_tensors(raw_batch)

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        return StepResult(metrics={"loss": 0.0})

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        if ctx.batch_counts:
            scores = torch.sigmoid(prepared_batch["x"].float() - prepared_batch["y"].float())
            state["metrics"].update(scores, (prepared_batch["row"] % 3 == 0).long())
        return StepResult(metrics={"row": prepared_batch["row"].double().mean()})

    test_step = validate_step

    def evaluation_metrics(self, state: Any, ctx: Any) -> Any:
        what, _, rank = ctx.hyperparams.does.partition(":")
        if rank == f"{ctx.rank}" and what == "raise":
            raise ValueError("there are no positive rows")
        found = state["metrics"].compute()  # a collective
        state["metrics"].reset()
        if what == "taken":
            return {"row": 1.0}
        if what == "text":
            return "0.5" if rank == f"{ctx.rank}" else {"of": ctx.rank}
        return found if ctx.rank == 0 else {"of": ctx.rank}  # those of other ranks are not recorded

    def state_dict(self, state: Any) -> dict[str, Any]:
        return {"model": state["model"].state_dict()}

    def load_state_dict(self, state: Any, payload: Any, ctx: Any) -> None:
        state["model"].load_state_dict(payload["model"])
