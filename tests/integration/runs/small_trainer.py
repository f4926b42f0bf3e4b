"""A trainer that dies, hangs or dawdles where its hyperparameters say so."""

import ctypes
import os
import random
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import attrs
import torch

from hostcore_hookspecs import Capabilities, InvalidData, StepResult, hookimpl
from hostcore_toolkit import training_state


class Trainer:
    """Finds the square root of 2."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: What happens in step ``at``: ``raise``, ``segfault``, ``exit``, ``sys.exit``, ``interrupt``, ``long``,
        #: ``remove``, ``hang``, ``invalid``.
        how: str = ""
        at: int = 0
        #: Of every step.
        seconds: float = 0.0
        #: In the middle it waits for this file; empty: it does not.
        until: str = ""

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)
        print("hello from the trainer")
        print("a word on standard error", file=sys.stderr)

    def configure(self, ctx: Any) -> dict[str, torch.Tensor]:
        return {"x": torch.tensor(3.0), "noise": torch.tensor(0.0)}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        if ctx.hyperparams.how == "invalid" and ctx.run_state.step + 1 == ctx.hyperparams.at:
            raise InvalidData("the labels are all the same")
        return raw_batch

    def train_step(self, prepared_batch: Any, state: dict[str, torch.Tensor], ctx: Any) -> StepResult:
        step, wishes = ctx.run_state.step + 1, ctx.hyperparams
        if step == wishes.at:
            _misbehave(wishes.how, ctx)
        time.sleep(wishes.seconds)
        if wishes.until and ctx.run_state.step == ctx.run_state.total_steps // 2:
            while not Path(wishes.until).exists() and not ctx.is_canceled():
                time.sleep(0.01)
        state["x"] = (state["x"] + 2 / state["x"]) / 2
        state["noise"] = torch.rand(()) + random.random()
        return StepResult(metrics={"error": (state["x"] ** 2 - 2) ** 2, "noise": state["noise"]})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return dict(state)

    def load_state_dict(self, state: Any, payload: Any) -> None:
        state.update(payload)


class Slow(Trainer):
    """Says in a file which process it is, when it has made three steps, and goes on slowly."""

    def train_step(self, prepared_batch: Any, state: dict[str, torch.Tensor], ctx: Any) -> StepResult:
        if ctx.run_state.step >= 3:
            _tell(ctx, "pid", str(os.getpid()))
            time.sleep(0.02)
        return super().train_step(prepared_batch, state, ctx)


class SlowStart(Slow):
    """Starts when it is asked to stop."""

    def setup(self, ctx: Any) -> None:
        while not ctx.is_canceled():
            time.sleep(0.02)
        super().setup(ctx)


class SlowRanks(Slow):
    """The same, on several ranks as well."""

    CAPABILITIES = Capabilities(distributed=True)


def _misbehave(how: str, ctx: Any) -> None:
    if how == "raise":
        _deep(3)
    elif how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    elif how == "sys.exit":
        sys.exit("I have had enough")
    elif how == "interrupt":
        raise KeyboardInterrupt("nobody has pressed Ctrl-C")
    elif how == "long":
        raise ValueError("x" * 40_000_000)
    elif how == "remove":
        removed = Path(f"{ctx.job.run_id}.removed")  # at once: the supervisor goes on to write there
        Path(ctx.run_dir).rename(removed)
        shutil.rmtree(removed, ignore_errors=True)
    elif how == "hang":
        _tell(ctx, "pid", str(os.getpid()))
        while True:
            if ctx.is_canceled():
                _tell(ctx, "canceled", "yes")
            time.sleep(0.02)


def _deep(levels: int) -> None:
    if levels:
        _deep(levels - 1)
    raise ValueError("the loss has exploded")


def _tell(ctx: Any, what: str, text: str) -> None:
    """Write ``<run_id>.<what>`` beside the job, whole or not at all."""
    path = Path(f"{ctx.job.run_id}.{what}")
    if not path.exists():
        own = path.with_suffix(f".{os.getpid()}.tmp")  # each of several ranks writes it
        own.write_text(text)
        own.rename(path)


class Adam(Trainer):
    """Finds it by AdamW, and stores parameters alone."""

    def configure(self, ctx: Any) -> dict[str, Any]:
        model = torch.nn.Linear(1, 1)
        return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.1)}

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        state["optimizer"].zero_grad()
        loss = (state["model"](torch.ones(1)) ** 2 - 2).pow(2).sum()
        loss.backward()
        state["optimizer"].step()
        return StepResult(metrics={"error": loss.detach()})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return state["model"].state_dict()

    def load_state_dict(self, state: Any, payload: Any) -> None:
        state["model"].load_state_dict(payload)


class AdamOfTorch(Adam):
    """Has torch collect the state, which steps an optimizer that has none yet."""

    def state_dict(self, state: Any) -> dict[str, Any]:
        return training_state(state["model"], state["optimizer"])


class Unstorable(Trainer):
    """Has a state that no checkpoint can hold."""

    def state_dict(self, state: Any) -> dict[str, Any]:
        return {"model": [threading.Lock()]}


class UnstorableCallback:
    """Has a state that no checkpoint can hold."""

    def callback_state(self) -> dict[str, Any]:
        return {"seen": {1, 2}}

    def load_callback_state(self, payload: Any) -> None: ...


class LaterUnstorable(Trainer):
    """Has one from the second step on."""

    def state_dict(self, state: Any) -> dict[str, Any]:
        return {"x": set() if state["x"] < 1.5 else 0}


class LaterUnstorableToo:
    """Has one from the second step on."""

    state: Any = None

    def on_batch_end(self, result: Any, run_state: Any) -> None:
        self.state = {1} if run_state.step > 1 else None

    def callback_state(self) -> dict[str, Any]:
        return {"seen": self.state}

    def load_callback_state(self, payload: Any) -> None: ...


class DrawsInStateDict(Trainer):
    """Draws from the global generators where it should not."""

    def state_dict(self, state: Any) -> dict[str, Any]:
        torch.rand(3)
        random.random()
        return dict(state)


class Forgetful(Trainer):
    """Needs a file for its state that is not there once it has made two steps."""

    def state_dict(self, state: Any) -> dict[str, Any]:
        if state["x"] > 1.5:
            return dict(state)
        return {"vocabulary": Path("vocab.txt").read_text()}


class FailOnce:
    """Raises in the first attempt."""

    def on_batch_end(self, run_state: Any, ctx: Any) -> None:
        marker = Path(f"{ctx.job.run_id}.failed")
        if not marker.exists():
            marker.touch()
            raise RuntimeError("only once")


class InterruptOnce:
    """Raises KeyboardInterrupt in the first attempt, which nobody has caused."""

    def on_batch_end(self, run_state: Any, ctx: Any) -> None:
        marker = Path(f"{ctx.job.run_id}.interrupted")
        if not marker.exists():
            marker.touch()
            raise KeyboardInterrupt


class BlockStepTwo:
    """Lies a file where the folder of checkpoints should be, in step 2 alone."""

    def on_batch_end(self, run_state: Any, ctx: Any) -> None:
        folder = _checkpoints(ctx)
        if run_state.step == 2:
            folder.rename(folder.with_name("aside"))
            folder.touch()
        elif run_state.step == 3:
            folder.unlink()
            folder.with_name("aside").rename(folder)


class Overtake:
    """Claims the next attempt after the first checkpoint, as another process would that takes this one for dead."""

    def on_checkpoint_saved(self, ctx: Any) -> None:
        (_checkpoints(ctx).parent / "attempts" / "2.json").write_text("{}")


def _checkpoints(ctx: Any) -> Path:
    return Path("runs", ctx.job.run_id, "checkpoints")


class SeesCheckpoints:
    """A callback that writes the steps of all checkpoints to ``seen.txt``, a line after each save."""

    def on_checkpoint_saved(self, run_state: Any, ctx: Any) -> None:
        with _checkpoints(ctx).with_name("seen.txt").open("a") as file:
            file.write(f"{[one.step for one in run_state.checkpoints]}\n")


class LeavesAThread(Trainer):
    """Starts a thread that never ends, and then cannot be made."""

    def __init__(self) -> None:
        threading.Thread(target=threading.Event().wait, daemon=False).start()
        raise RuntimeError("the constructor gave up")


class Loss:
    """Calls the error a loss, so that there is something to draw."""

    @hookimpl(wrapper=True)
    def train_step(self) -> Any:
        result = yield
        return StepResult(metrics={"loss": result.metrics["error"]})


class NotFinite:
    """The error is a loss that is not finite from step ``first`` to step ``last``, and a failure at ``fails``, once."""

    @attrs.frozen(kw_only=True)
    class Settings:
        first: int
        last: int = 10**9
        fails: int = 0

    def __init__(self, *, settings: Settings) -> None:
        self._settings = settings

    @hookimpl(wrapper=True)
    def train_step(self, ctx: Any) -> Any:
        result = yield
        step, wishes = ctx.run_state.step + 1, self._settings
        marker = Path(f"{ctx.job.run_id}.failed")
        if step == wishes.fails and not marker.exists():
            marker.touch()
            raise RuntimeError("only once")
        again = wishes.fails and marker.exists()
        is_nan = wishes.first <= step <= wishes.last and not again
        return StepResult(metrics={"loss": float("nan") if is_nan else result.metrics["error"]})

    @hookimpl(wrapper=True)
    def validate_step(self) -> Any:
        yield
        return StepResult(metrics={"loss": float("inf")})


class Counting(Trainer):
    """Counts its steps outside of its state, and dies once, in step ``at``, when its checkpoints are on the disk."""

    def __init__(self) -> None:
        self._steps = 0

    def train_step(self, prepared_batch: Any, state: dict[str, torch.Tensor], ctx: Any) -> StepResult:
        marker = Path(f"{ctx.job.run_id}.died")
        if ctx.run_state.step + 1 == ctx.hyperparams.at and not marker.exists():
            marker.touch()
            while ctx.job.checkpoint_every and not (_checkpoints(ctx) / "step-000004.json").exists():
                time.sleep(0.01)
            self._die()
        self._steps += 1
        state["x"] = state["x"] * 0.9
        count = self._steps if ctx.hyperparams.how == "counts" else ctx.run_state.step
        return StepResult(metrics={"loss": state["x"] * count, "step_seconds": time.perf_counter()})

    def _die(self) -> None:
        os._exit(9)


class CountingOnce(Counting):
    """The same, for a process that others need."""

    def _die(self) -> None:
        raise ValueError("only once")


class CountingStopped(Counting):
    """The same; its process is asked to stop, and stops behind the step."""

    def train_step(self, prepared_batch: Any, state: dict[str, torch.Tensor], ctx: Any) -> StepResult:
        if ctx.is_canceled() and ctx.hyperparams.how == "fails behind the stop":
            raise ValueError("it was to stop")
        return super().train_step(prepared_batch, state, ctx)

    def _die(self) -> None:
        signal.raise_signal(signal.SIGTERM)


class StopsAtLoad(Trainer):
    """Is stopped while it loads a checkpoint, if there is a file ``stop-at-load``."""

    def configure(self, ctx: Any) -> dict[str, torch.Tensor]:
        self._ctx = ctx
        return super().configure(ctx)

    def load_state_dict(self, state: Any, payload: Any) -> None:
        super().load_state_dict(state, payload)
        if Path("stop-at-load").exists():
            signal.raise_signal(signal.SIGINT)
            while not self._ctx.is_canceled():
                time.sleep(0.01)
