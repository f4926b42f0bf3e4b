"""A trainer whose loss, gradients and memory go wrong in the steps that its hyperparameters say."""

from typing import Any

import attrs
import torch

from hostcore_hookspecs import Capabilities, StepResult


class Trainer:
    """Fits a plane through one point."""

    CAPABILITIES = Capabilities(precisions=("fp32", "bf16", "fp16"))

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: Steps whose loss is NaN.
        nan: tuple[int, ...] = ()
        #: Steps whose gradients alone are NaN.
        nan_gradients: tuple[int, ...] = ()
        #: A step that asks for more memory than there is, and one that fails otherwise.
        hungry: int = 0
        broken: int = 0
        register: bool = True
        optimizer: str = "SGD"

    def setup(self) -> None:
        torch.set_num_threads(1)

    def configure(self, ctx: Any) -> dict[str, Any]:
        model = torch.nn.Linear(2, 1)
        optimizer = getattr(torch.optim, ctx.hyperparams.optimizer)(model.parameters(), lr=0.1)
        if ctx.hyperparams.register:
            ctx.register_optimizer(optimizer)
        return {"model": model, "optimizer": optimizer}

    def prepare_batch(self, raw_batch: Any) -> Any:
        return {"x": torch.ones(3, 2)}

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        step, wishes = ctx.run_state.step + 1, ctx.hyperparams
        if step == wishes.hungry:
            torch.empty(2**60, dtype=torch.uint8)
        if step == wishes.broken:
            raise ValueError("a bad batch")
        with ctx.autocast():
            loss = (state["model"](prepared_batch["x"]) - 1).square().mean()
        shown = loss.detach()
        if step in wishes.nan:
            loss = loss * float("nan")
            shown = loss.detach()
        elif step in wishes.nan_gradients:
            loss = loss * float("nan")
        state["optimizer"].zero_grad()
        if ctx.scaler is None:
            loss.backward()
            state["optimizer"].step()
        else:
            ctx.scaler.scale(loss).backward()
            ctx.scaler.step(state["optimizer"])
            ctx.scaler.update()
        return StepResult(metrics={"loss": shown, "weight": state["model"].weight.detach().sum()})

    def state_dict(self, state: dict[str, Any]) -> dict[str, Any]:
        return {name: one.state_dict() for name, one in state.items()}

    def load_state_dict(self, state: dict[str, Any], payload: dict[str, Any]) -> None:
        for name, one in state.items():
            one.load_state_dict(payload[name])
