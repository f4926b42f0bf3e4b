"""A trainer that lets the host make a step again, and for which memory runs out where its hyperparameters say so.

There is no GPU whose memory could run out here: above ``fits`` rows it raises what torch raises. ``real`` is the CPU's
own allocator, which fails under a limit of the process.
"""

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import attrs
import orjson
import torch
from torch.nn.functional import mse_loss

from hostcore_hookspecs import Capabilities, StepResult, hookimpl
from hostcore_toolkit import average_gradients, parallelize, to_tensors

#: The step in which a machine is taken away; 0: none. Not a setting, since it must not make another job.
PREEMPT_AT = 0
#: How much is drawn before memory runs out: where that is depends on chance.
DRAWS = 0
#: By run: the step, and the rows of each part that ``train_step`` got, of every call.
SEEN: dict[str, list[tuple[int, list[int]]]] = {}
#: By run: its weights, when it ended.
WEIGHTS: dict[str, list[torch.Tensor]] = {}

_ROW_BYTES = 256 << 20
#: Two rows fit and four do not, by a row: what else the process takes or gives back makes no difference.
_ROOM_BYTES = 3 * _ROW_BYTES


class Trainer:
    """Fits noise."""

    CAPABILITIES = Capabilities(accumulate=True, precisions=("fp32", "fp16"), distributed=True, split_on_oom=True)

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: Rows in a part for which memory is enough; 0: all.
        fits: int = 0
        #: From this step on.
        since: int = 1
        #: Of this rank; -1: of all.
        rank: int = -1
        #: ``backward``: when gradients are there; ``update``: when the update has begun; ``real``: the CPU's allocator.
        where: str = "backward"
        strategy: str = "replicate"
        #: Whether ``begin_update`` is called.
        says: bool = True
        #: The share of values that are dropped.
        dropout: float = 0.0

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)

    def configure(self, ctx: Any) -> dict[str, Any]:
        layers = [torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Dropout(ctx.hyperparams.dropout)]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(8, 1))
        if ctx.scaler is None:
            model = model.double()
        model = parallelize(model, ctx, strategy=ctx.hyperparams.strategy)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        if ctx.hyperparams.where == "real":
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM_BYTES, resource.RLIM_INFINITY))
        return {"model": model, "optimizer": optimizer}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> dict[str, torch.Tensor]:
        kind = torch.float32 if ctx.scaler is not None else torch.float64
        return {name: one.to(kind)[:, None] for name, one in to_tensors(raw_batch).items()}

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        parts = prepared_batch if isinstance(prepared_batch, tuple) else (prepared_batch,)
        self._note(parts, ctx)
        rows, losses = sum(len(one["y"]) for one in parts), []
        for one in parts:
            with ctx.autocast():
                predicted = state["model"](one["x"])
            loss = mse_loss(predicted.to(one["y"].dtype), one["y"]) * len(one["y"]) / rows
            (loss if ctx.scaler is None else ctx.scaler.scale(loss)).backward()
            losses.append(loss.detach())
            self._allocate(one, ctx, "backward")
        if ctx.hyperparams.says:
            ctx.begin_update()
        self._allocate(parts[0], ctx, "update")
        average_gradients(state["model"], ctx)
        if ctx.scaler is None:
            state["optimizer"].step()
        else:
            ctx.scaler.step(state["optimizer"])
            ctx.scaler.update()
        state["optimizer"].zero_grad()
        if ctx.run_state.step + 1 == PREEMPT_AT:
            os.kill(os.getpid(), signal.SIGTERM)
        return StepResult(metrics={"loss": sum(losses)}, weight=rows)

    def _note(self, parts: Any, ctx: Any) -> None:
        seen = SEEN.setdefault(ctx.job.run_id, [])
        seen.append((ctx.run_state.step + 1, [len(one["y"]) for one in parts]))
        if ctx.world_size > 1:
            Path(f"{ctx.job.run_id}.rank-{ctx.rank}.json").write_bytes(orjson.dumps(seen))

    def _allocate(self, part: Any, ctx: Any, where: str) -> None:
        wishes, rows = ctx.hyperparams, len(part["y"])
        if where == "backward" and wishes.where == "real":
            torch.empty(rows * _ROW_BYTES, dtype=torch.uint8)
        if wishes.where != where or ctx.run_state.step + 1 < wishes.since or wishes.rank not in (-1, ctx.rank):
            return
        if wishes.fits and rows > wishes.fits:
            torch.rand(DRAWS)
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {rows} GiB.\nSee the documentation.")

    def state_dict(self, state: Any) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in state.items()}

    def load_state_dict(self, state: Any, payload: Any) -> None:
        for name, part in state.items():
            part.load_state_dict(payload[name])

    def teardown(self, state: Any, ctx: Any) -> None:
        WEIGHTS[ctx.job.run_id] = [one.detach().clone() for one in state["model"].parameters()]


class Transforming(Trainer):
    """Makes columns of the rows, ahead of the loop."""

    def transform_batch(self, raw_batch: Any) -> dict[str, Any]:
        return {name: raw_batch.column(name).to_numpy() for name in raw_batch.schema.names}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> dict[str, torch.Tensor]:
        return {name: torch.tensor(one).double()[:, None] for name, one in raw_batch.items()}


class Packing(Trainer):
    """Breaks its promise: what it makes of the rows ahead of the loop hides how many there are."""

    def transform_batch(self, raw_batch: Any) -> tuple[Any, ...]:
        return (raw_batch,)

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> dict[str, torch.Tensor]:
        return super().prepare_batch(raw_batch[0], state, ctx)


class Watching:
    """Records a metric around each call of ``train_step``, and notes the batches."""

    batches: ClassVar[list[Any]] = []

    def on_batch_begin(self, batch: Any) -> None:
        self.batches.append(batch)

    @hookimpl(wrapper=True)
    def train_step(self, prepared_batch: Any, ctx: Any) -> Iterator[None]:
        ctx.record("parts", len(prepared_batch) if isinstance(prepared_batch, tuple) else 1)
        return (yield)
