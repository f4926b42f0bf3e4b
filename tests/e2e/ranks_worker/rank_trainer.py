"""A trainer for several ranks, which writes down what it has seen, and misbehaves where it is told to."""

import json
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import nn

from hostcore_hookspecs import Best, Capabilities, StepControl, StepResult
from hostcore_toolkit import load_training_state, parallelize, to_tensors, training_state


class Net(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(2, 5)
        self.blocks = nn.ModuleList([nn.Linear(5, 5), nn.Linear(5, 5)])
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(5, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(inputs))
        for block in self.blocks:
            hidden = self.dropout(torch.tanh(block(hidden)))
        return self.last(hidden)


class Trainer:
    """Regression on two columns."""

    CAPABILITIES = Capabilities(accumulate=True, distributed=True, precisions=("fp32", "bf16"))

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: One of :func:`parallelize`, or ``none``: the ranks train alone.
        strategy: str = "ddp"
        dropout: float = 0.0
        #: ``what:rank:step``, such as ``sigterm:1:3``.
        does: str = ""
        #: Of a step on each rank.
        seconds: tuple[float, ...] = ()
        backoff: float = 0.0
        saves_own: bool = False
        #: ``toolkit.training_state``; else the plain ``state_dict`` methods.
        portable: bool = True

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)

    def configure(self, ctx: Any) -> dict[str, Any]:
        model = Net(ctx.hyperparams.dropout)
        if ctx.hyperparams.strategy != "none":
            model = parallelize(model, ctx, strategy=ctx.hyperparams.strategy)
        self.rows: dict[int, list[int]] = {}
        self.draws: dict[int, float] = {}
        self.first_weights = _digest(model)
        return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.05)}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return to_tensors(raw_batch)

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        step = ctx.run_state.step + 1
        micro = prepared_batch if isinstance(prepared_batch, tuple) else (prepared_batch,)
        if ctx.hyperparams.seconds:
            time.sleep(ctx.hyperparams.seconds[ctx.rank])
        _misbehave(ctx, step)
        self.draws[step] = torch.rand(()).item() + random.random()
        self.rows[step] = [row for one in micro for row in one["row"].tolist()]
        state["optimizer"].zero_grad()
        total = 0.0
        for one in micro:
            loss = _loss(state["model"], one) / len(micro)
            loss.backward()
            total += loss.detach()
        state["optimizer"].step()
        metrics = {"loss": total}
        if ctx.hyperparams.does == f"many-metrics:{ctx.rank}:{step}":
            metrics.update({f"{number}/{'long' * 20}": float(number) for number in range(100)})
        control = StepControl(
            skip_cadence_emit=ctx.hyperparams.does in (f"skip:{ctx.rank}:{step}", f"skip:*:{step}"),
            record_metrics=ctx.hyperparams.does in (f"record:{ctx.rank}:{step}", f"record:*:{step}"),
            backoff_seconds=ctx.hyperparams.backoff if step == 2 else None,
        )
        weight = sum(len(one["x"]) for one in micro)
        return StepResult(metrics=metrics, debug={"rank": ctx.rank}, weight=weight, control=control)

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        rows = prepared_batch["row"].tolist()
        self.rows.setdefault(-ctx.run_state.step, []).extend(rows)
        loss = _loss(state["model"], prepared_batch)
        return StepResult(metrics={"loss": loss, "row": sum(rows) / len(rows)}, weight=len(rows))

    test_step = validate_step

    def generate_sample(self, state: Any, step: int, request: Any, output_dir: str, ctx: Any) -> None:
        """Nothing but the folder."""

    def state_dict(self, state: Any) -> dict[str, Any]:
        if self.portable:
            return {**training_state(state["model"], state["optimizer"]), "note": "kept"}
        return {"model": state["model"].state_dict(), "optimizer": state["optimizer"].state_dict()}

    portable = True

    def load_state_dict(self, state: Any, payload: Any, ctx: Any) -> None:
        if self.portable:
            assert payload["note"] == "kept"
            load_training_state(state["model"], state["optimizer"], payload)
        else:
            state["model"].load_state_dict(payload["model"])
            state["optimizer"].load_state_dict(payload["optimizer"])

    def save_checkpoint(
        self, state: Any, step: int, output_dir: str, final: bool, ctx: Any
    ) -> Mapping[str, Any] | None:
        if ctx.hyperparams.does == f"block:{ctx.rank}:{step}":
            Path(output_dir).with_name("state.shards").touch()
        if not ctx.hyperparams.saves_own:
            return None
        Path(output_dir, f"rank-{ctx.rank}.txt").write_text(f"{step}")
        return {"by": ctx.rank}

    def teardown(self, state: Any, ctx: Any) -> None:
        notes = {
            "rows": self.rows,
            "draws": self.draws,
            "first": self.first_weights,
            # Not after an error: the other ranks would have to take part.
            "weights": {name: _whole(value).tolist() for name, value in _plain(state["model"]).items()}
            if ctx.run_state.step == ctx.run_state.total_steps
            else None,
            "step": ctx.run_state.step,
            "stops": [attrs.asdict(one) for one in ctx.run_state.stop_requests],
            "checkpoints": [one.step for one in ctx.run_state.checkpoints],
        }
        attempt = len(list(Path(ctx.run_dir, "attempts").iterdir()))
        Path(ctx.run_dir, f"notes.{ctx.rank}.attempt-{attempt}.json").write_text(json.dumps(notes))


class Plain(Trainer):
    """Stores what the ``state_dict`` methods of torch return."""

    portable = False


class Told:
    """A callback that writes down at which step it is told of what, and asks for things where it is told to."""

    @attrs.frozen(kw_only=True)
    class Settings:
        #: ``what:rank:step``
        does: str = ""

    def __init__(self, settings: Settings) -> None:
        self.does = settings.does
        self.told: list[list[Any]] = []

    def _asked(self, what: str, ctx: Any) -> bool:
        ranks = f"{ctx.rank}*"
        return any(self.does == f"{what}:{rank}:{ctx.run_state.step}" for rank in ranks)

    def on_batch_end(self, run_state: Any, ctx: Any) -> None:
        if self._asked("stop", ctx):
            ctx.request_stop(f"enough, says rank {ctx.rank}" if "*" not in self.does else "enough")

        if self._asked("restore-step", ctx):
            ctx.request_restore(1, "to try")
        if self._asked("best", ctx):
            ctx.request_best(Best(metric="train/loss", value=0.5, step=run_state.step))

    def on_validation_end(self, metrics: Any, run_state: Any, ctx: Any) -> None:
        if self._asked("stop-validation", ctx):
            ctx.request_stop("good enough")
        if self._asked("restore", ctx):
            ctx.request_restore(2, "to try")

    def on_checkpoint_saved(self, checkpoint: Any, run_state: Any) -> None:
        self.told.append(["saved", checkpoint.step, run_state.step])

    def on_stop_requested(self, reason: str, run_state: Any) -> None:
        self.told.append(["stop", reason, run_state.step])

    def callback_state(self) -> dict[str, Any]:
        return {"told": len(self.told)}

    def load_callback_state(self, payload: Any) -> None:
        self.told.append(["loaded", payload["told"]])

    def on_train_end(self, ctx: Any) -> None:
        attempt = len(list(Path(ctx.run_dir, "attempts").iterdir()))
        Path(ctx.run_dir, f"told.{ctx.rank}.attempt-{attempt}.json").write_text(json.dumps(self.told))


class ReadsAlone:
    """Reads the metrics on the first rank alone, at every step, while the others go on to their next collective."""

    def __init__(self) -> None:
        self.read: list[Any] = []

    def on_batch_begin(self, run_state: Any, ctx: Any) -> None:
        if ctx.rank == 0:
            points = [list(point) for point in run_state.history.get("train/loss", ())]
            self.read.append([run_state.step, run_state.metrics.get("train/loss"), points[-1:]])

    def on_train_end(self, ctx: Any) -> None:
        if ctx.rank == 0:
            Path(ctx.run_dir, "read.json").write_text(json.dumps(self.read))


def _loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    inputs = torch.stack([batch["x"], batch["y"]], 1).float()
    target = (batch["x"] - batch["y"] * 0.5).float()
    return ((model(inputs).squeeze(1) - target) ** 2).mean()


def _plain(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name.removeprefix("module."): value for name, value in model.state_dict().items()}


def _whole(value: Any) -> torch.Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _digest(model: nn.Module) -> float:
    return float(sum(_whole(value).double().sum() for value in _plain(model).values()))


def _misbehave(ctx: Any, step: int) -> None:
    what, _, where = ctx.hyperparams.does.partition(":")
    if where != f"{ctx.rank}:{step}":
        return
    if what == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
    elif what == "raise":
        raise ValueError("the loss has exploded")
    elif what == "die":
        os._exit(7)


class Obstruct:
    """Lies a file where the folder of checkpoints should be, in one step alone or from it on."""

    @attrs.frozen(kw_only=True)
    class Settings:
        at: int
        until: int

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def on_batch_end(self, run_state: Any, ctx: Any) -> None:
        folder = Path(ctx.run_dir, "checkpoints")
        if ctx.rank == 0 and run_state.step == self.settings.at:
            folder.rename(folder.with_name("aside"))
            folder.touch()
        elif ctx.rank == 0 and run_state.step == self.settings.until:
            folder.unlink()
            folder.with_name("aside").rename(folder)


class RecordsRank:
    """Records the rank, and on the second one alone something else."""

    def on_batch_end(self, ctx: Any) -> None:
        ctx.record("mine/rank", torch.tensor(float(ctx.rank)))
        if ctx.rank == 1:
            ctx.record("mine/alone", 5.0)


class Ended:
    """Writes down what each validation has found, on its rank."""

    def __init__(self) -> None:
        self.ended: list[dict[str, float]] = []

    def on_validation_end(self, metrics: Mapping[str, float], ctx: Any) -> None:
        self.ended.append(dict(metrics))
        Path(ctx.run_dir, f"ended.{ctx.rank}.json").write_text(json.dumps(self.ended))
