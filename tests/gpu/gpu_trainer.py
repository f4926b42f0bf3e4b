"""A trainer that computes on the job's device, and does there what its hyperparameters ask for."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import attrs
import torch
from torch.nn.functional import mse_loss

from hostcore_hookspecs import Capabilities, StepResult
from hostcore_toolkit import to_device, to_tensors

#: What of a GPU's memory a run may take that is to run out of it, in bytes.
ROOM = 400 << 20


class Trainer:
    """Fits noise, with dropout."""

    CAPABILITIES = Capabilities(
        accumulate=True, precisions=("fp32", "bf16", "fp16"), distributed=True, split_on_oom=True
    )

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        width: int = 64
        dropout: float = 0.0
        #: Kills itself in these steps, each once: a file of the run's folder keeps count.
        kills: tuple[int, ...] = ()
        #: An index out of range, in this step.
        asserts_at: int = 0
        #: Rows for which memory is enough; 0: all.
        fits: int = 0
        #: Bytes that each row takes on a GPU in the forward pass.
        row_bytes: int = 0
        #: Waits in the third step until there is such a file.
        until: str = ""
        #: A synchronisation between two cadence steps is an error.
        never_waits: bool = False

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)
        self._device = torch.device(ctx.device if torch.cuda.is_available() else "cpu")  # it may be pretended
        if ctx.job.deterministic:
            assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        if ctx.hyperparams.fits and self._device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(
                ROOM / torch.cuda.get_device_properties(self._device).total_memory
            )

    def configure(self, ctx: Any) -> dict[str, Any]:
        width = ctx.hyperparams.width
        layers = [torch.nn.Linear(1, width), torch.nn.GELU(), torch.nn.Dropout(ctx.hyperparams.dropout)]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 1))
        model = model.to(self._device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        ctx.register_optimizer(optimizer)
        return {"model": model, "optimizer": optimizer}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> dict[str, torch.Tensor]:
        step, every = ctx.run_state.step + 1, max(ctx.job.metric_every, 1)
        if ctx.hyperparams.never_waits and self._device.type == "cuda":
            waits = step == 1 or step % every == 0 or step == ctx.run_state.total_steps
            torch.cuda.set_sync_debug_mode("default" if waits else "error")
        batch = to_device(to_tensors(raw_batch), self._device)
        return {name: one.float()[:, None] for name, one in batch.items()}

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        parts = prepared_batch if isinstance(prepared_batch, tuple) else (prepared_batch,)
        rows, losses, step = sum(len(one["y"]) for one in parts), [], ctx.run_state.step + 1
        for one in parts:
            with ctx.autocast():
                predicted = state["model"](one["x"])
            loss = mse_loss(predicted.float(), one["y"]) * len(one["y"]) / rows
            (loss if ctx.scaler is None else ctx.scaler.scale(loss)).backward()
            losses.append(loss.detach())
            self._allocate(len(one["y"]), ctx)
        ctx.begin_update()
        if ctx.scaler is None:
            state["optimizer"].step()
        else:
            ctx.scaler.step(state["optimizer"])
            ctx.scaler.update()
        state["optimizer"].zero_grad()
        self._misbehave(step, ctx)
        return StepResult(metrics={"loss": sum(losses)}, weight=rows)

    def _allocate(self, rows: int, ctx: Any) -> None:
        wishes = ctx.hyperparams
        if self._device.type == "cuda" and wishes.row_bytes:
            torch.empty(rows * wishes.row_bytes, dtype=torch.uint8, device=self._device)
        elif wishes.fits and rows > wishes.fits:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {rows} GiB.\nSee the documentation.")

    def _misbehave(self, step: int, ctx: Any) -> None:
        wishes = ctx.hyperparams
        if step in wishes.kills:
            mark = Path(f"{ctx.job.run_id}.killed-{step}")
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if step == wishes.asserts_at:
            if self._device.type == "cuda":
                torch.zeros(2, device=self._device)[torch.full((1,), 5, device=self._device)].sum()
            else:  # as a GPU whose context is gone: whatever is asked of it says so
                raise RuntimeError("CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert'.\n")
        if wishes.until and step == 3:
            Path(f"{ctx.job.run_id}.waits").write_text(str(os.getpid()))
            while not Path(wishes.until).exists():
                time.sleep(0.02)

    def state_dict(self, state: Any) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in state.items()}

    def load_state_dict(self, state: Any, payload: Any) -> None:
        for name, part in state.items():
            part.load_state_dict(payload[name])
