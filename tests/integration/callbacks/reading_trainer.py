"""A trainer made of the toolkit, whose tensors are those of a pretended device; see ``device_reads``."""

from typing import Any

import attrs
import torch
from device_reads import DeviceReads

from hostcore_hookspecs import Capabilities, StepResult
from hostcore_toolkit import (
    average_gradients,
    build_default_adamw_bundle,
    load_training_state,
    parallelize,
    to_device,
    to_tensors,
    training_state,
)

DEVICE = DeviceReads()


class Trainer:
    """Fits noise."""

    CAPABILITIES = Capabilities(accumulate=True, precisions=("fp32", "bf16"), split_on_oom=True)

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        learning_rate: float = 0.01
        #: Steps whose loss is NaN.
        nan: tuple[int, ...] = ()
        #: The loss that the trainer returns lies in the same memory at every step, as with a CUDA graph.
        reuses: bool = False
        #: Reads its loss at every step: what the test has to find.
        reads: bool = False

    def setup(self) -> None:
        torch.set_num_threads(1)
        DEVICE.start()

    def configure(self, ctx: Any) -> dict[str, Any]:
        model = DEVICE.put(parallelize(torch.nn.Linear(1, 1), ctx))
        bundle = build_default_adamw_bundle(model, hyperparams=ctx.hyperparams, max_steps=ctx.run_state.total_steps)
        ctx.register_optimizer(bundle.optimizer, bundle.scheduler)
        return {
            "model": model,
            "optimizer": bundle.optimizer,
            "scheduler": bundle.scheduler,
            "loss": DEVICE.put(torch.zeros(())),
        }

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        if ctx.split == "train":
            self._allow(ctx)
        batch = to_device(to_tensors(raw_batch, device=ctx.device), ctx)
        return DEVICE.put({name: one.float()[:, None] for name, one in batch.items()})

    def _allow(self, ctx: Any) -> None:
        """Allow reading at a cadence step: from here on to the next batch."""
        job, step = ctx.job, ctx.run_state.step + 1
        every = [one for one in (job.metric_every, job.checkpoint_every, job.validate_every) if one]
        DEVICE.forbidden = step < ctx.run_state.total_steps and all(step % one for one in every)

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        parts = prepared_batch if isinstance(prepared_batch, tuple) else (prepared_batch,)
        losses = []
        for one in parts:
            with ctx.autocast():
                loss = (state["model"](one["x"]) - one["y"]).square().mean() / len(parts)
            if ctx.run_state.step + 1 in ctx.hyperparams.nan:
                loss = loss * float("nan")
            loss.backward()
            losses.append(loss.detach())
        ctx.begin_update()
        average_gradients(state["model"], ctx)
        state["optimizer"].step()
        state["scheduler"].step()
        state["optimizer"].zero_grad()
        loss = state["loss"].copy_(sum(losses)) if ctx.hyperparams.reuses else sum(losses)
        if ctx.hyperparams.reads:
            loss.item()
        return StepResult(metrics={"loss": loss}, weight=DEVICE.put(torch.tensor(float(len(parts)))))

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        loss = (state["model"](prepared_batch["x"]) - prepared_batch["y"]).square().mean()
        loss = state["loss"].copy_(loss) if ctx.hyperparams.reuses else loss
        return StepResult(metrics={"loss": loss})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return {
            **training_state(state["model"], state["optimizer"]),
            "scheduler": state["scheduler"].state_dict(),
        }

    def load_state_dict(self, state: Any, payload: Any) -> None:
        load_training_state(state["model"], state["optimizer"], payload)
        state["scheduler"].load_state_dict(payload["scheduler"])

    def teardown(self) -> None:
        DEVICE.stop()
