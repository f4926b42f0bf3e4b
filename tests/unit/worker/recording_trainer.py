"""A trainer and callbacks that write down every call; what they do beside that, the job says."""

import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import torch

from hostcore_hookspecs import InvalidSettings, StepControl, StepResult, hookimpl, when_recorded

#: Every call since the test began.
CALLS: list[str] = []


class Trainer:
    """The required methods, those with a default, and the optional ones for checkpoints."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: Ask to stop in these steps.
        stop_at: tuple[int, ...] = ()
        raise_at: int = 0
        raise_in: str = ""
        skip_at: tuple[int, ...] = ()
        record_at: tuple[int, ...] = ()

    def setup(self, ctx: Any) -> None:
        CALLS.append("setup")
        self._hyperparams = ctx.hyperparams
        self._maybe_raise("setup")

    def _maybe_raise(self, method: str) -> None:
        if self._hyperparams.raise_in == method:
            raise ValueError(f"{method} went wrong")

    def configure(self, ctx: Any) -> dict[str, Any]:
        CALLS.append("configure")
        return {"weight": torch.zeros(2), "steps": 0}

    def prepare_batch(self, raw_batch: Any, state: dict[str, Any], ctx: Any) -> Any:
        CALLS.append(f"prepare_batch {raw_batch}")
        return raw_batch

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        state["steps"] += 1
        state["weight"] += 1
        step = state["steps"]
        CALLS.append(f"train_step {step}")
        if step == self._hyperparams.raise_at:
            raise ValueError(f"step {step} went wrong")
        if step in self._hyperparams.stop_at:
            ctx.request_stop("it is enough")
        skipped, wished = step in self._hyperparams.skip_at, step in self._hyperparams.record_at
        control = StepControl(skip_cadence_emit=skipped, record_metrics=wished) if skipped or wished else None
        return StepResult(metrics={"loss": float(step)}, control=control)

    def state_dict(self, state: dict[str, Any]) -> dict[str, object]:
        CALLS.append("state_dict")
        return dict(state)

    def load_state_dict(self, state: dict[str, Any], payload: dict[str, Any], ctx: Any) -> None:
        CALLS.append(f"load_state_dict {payload['steps']}")
        state.update(payload)

    def save_checkpoint(self, state: Any, step: int, output_dir: str, final: bool, ctx: Any) -> Mapping[str, object]:
        CALLS.append(f"save_checkpoint {step}{' final' if final else ''}")
        Path(output_dir, "notes.txt").write_text(f"step {step}")
        return {"note": "kept"}

    def load_checkpoint(self, state: Any, checkpoint_dir: str, payload: dict[str, Any], ctx: Any) -> None:
        CALLS.append(f"load_checkpoint {Path(checkpoint_dir, 'notes.txt').read_text()}")

    def teardown(self, state: Any, ctx: Any) -> None:
        CALLS.append("teardown")
        self._maybe_raise("teardown")


class Required:
    """Required methods and those with a default, no more. The batch decides what a step returns: ``RESULTS``."""

    def setup(self, ctx: Any) -> None:
        pass

    def configure(self, ctx: Any) -> dict[str, Any]:
        return {"steps": 0}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return raw_batch

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> Any:
        state["steps"] += 1
        return RESULTS[prepared_batch](state["steps"])

    def state_dict(self, state: Any) -> dict[str, object]:
        return dict(state)

    def load_state_dict(self, state: Any, payload: dict[str, Any], ctx: Any) -> None:
        state.update(payload)


class CountingMetrics(Mapping):  # type: ignore[type-arg]
    """Metrics that count how often they are looked at."""

    looked_at = 0

    def __init__(self, step: int) -> None:
        self._step = step

    def __getitem__(self, name: str) -> float:
        CountingMetrics.looked_at += 1
        return float(self._step)

    def __iter__(self) -> Any:
        return iter(["loss"])

    def __len__(self) -> int:
        return 1


#: What ``Required.train_step`` returns, by the batch.
RESULTS: dict[str, Any] = {
    "plain": lambda step: StepResult(metrics={"loss": step}),
    "tensors": lambda step: StepResult(
        metrics={"loss": torch.tensor(step, dtype=torch.float32), "grad": torch.tensor([0.5])}
    ),
    "names": lambda step: StepResult(
        metrics={"loss": 1, "learning_rate": 2, "grad_norm": 3, "train/x": 4, "val/loss": 5, "": 6}
    ),
    "other names": lambda step: StepResult(metrics={"train_loss": 1, "lr": 2}),
    "duck": lambda step: SimpleNamespace(metrics={"loss": step}),
    "duck with control": lambda step: SimpleNamespace(
        metrics={"loss": step}, control=SimpleNamespace(skip_cadence_emit=True, backoff_seconds=None)
    ),
    "none": lambda step: None,
    "dictionary": lambda step: {"loss": 1.0},
    "no mapping": lambda step: StepResult(metrics=[1.0]),  # type: ignore[arg-type]
    "text": lambda step: StepResult(metrics={"loss": "0.5"}),  # type: ignore[dict-item]
    "vector": lambda step: StepResult(metrics={"loss": torch.zeros(3)}),
    "boolean": lambda step: StepResult(metrics={"done": True}),
    "huge": lambda step: StepResult(metrics={"loss": 10**400}),
    "numbered": lambda step: StepResult(metrics={1: 0.5}),  # type: ignore[dict-item]
    "nan": lambda step: StepResult(metrics={"loss": float("nan"), "grad": torch.tensor(float("inf")), "ok": 1}),
    "empty": lambda step: StepResult(),
    "debug": lambda step: StepResult(
        metrics={"loss": step},
        debug={"step": step, "norm": torch.tensor(0.5), "nan": float("nan"), "texts": ["a", {"b": None}]},
    ),
    "duck with debug": lambda step: SimpleNamespace(metrics={"loss": step}, debug={"step": step}),
    "debug text": lambda step: StepResult(debug="x"),  # type: ignore[arg-type]
    "debug object": lambda step: StepResult(debug={"ok": 1, "model": object()}),
    "debug vector": lambda step: StepResult(debug={"grad": torch.zeros(3)}),
    "debug numbered": lambda step: StepResult(debug={1: 2}),  # type: ignore[dict-item]
    "large debug": lambda step: StepResult(debug={"ok": 1, "rows": ["x" * 1000] * 17}),
    "counted": lambda step: StepResult(metrics=CountingMetrics(step)),
    "backoff": lambda step: StepResult(metrics={"loss": step}, control=StepControl(backoff_seconds=3600)),
    "short backoff": lambda step: StepResult(metrics={"loss": step}, control=StepControl(backoff_seconds=0.01)),
}


class Watch:
    """A callback that implements every hook and keeps a state."""

    @attrs.frozen(kw_only=True)
    class Settings:
        name: str = "watch"
        raise_in: str = ""

    def __init__(self, *, settings: Settings) -> None:
        self._name = settings.name
        self._raise_in = settings.raise_in
        self._batches = 0

    def _note(self, hook: str, *about: object) -> None:
        prefix = "" if self._name == "watch" else f"{self._name}: "
        CALLS.append(" ".join([prefix + hook, *map(str, about)]))
        if hook == self._raise_in:
            raise RuntimeError(f"{hook} of {self._name} went wrong")

    def on_train_begin(self, run_state: Any, ctx: Any) -> None:
        self._note("on_train_begin", run_state.step)

    def on_train_end(self, run_state: Any, ctx: Any) -> None:
        self._note("on_train_end", run_state.step)

    def on_epoch_begin(self, run_state: Any, ctx: Any) -> None:
        self._note("on_epoch_begin", run_state.epoch)

    def on_epoch_end(self, run_state: Any, ctx: Any) -> None:
        self._note("on_epoch_end", run_state.epoch)

    def on_batch_begin(self, batch: Any, run_state: Any, ctx: Any) -> None:
        self._note("on_batch_begin", batch, run_state.step)

    def on_batch_end(self, result: Any, run_state: Any, ctx: Any) -> None:
        self._batches += 1
        self._note("on_batch_end", run_state.step)

    def on_checkpoint_saved(self, checkpoint: Any, run_state: Any, ctx: Any) -> None:
        self._note("on_checkpoint_saved", checkpoint.step, *(["final"] if checkpoint.final else []))

    def on_stop_requested(self, reason: str, requested_by: str, run_state: Any, ctx: Any) -> None:
        self._note("on_stop_requested", reason, "by", requested_by)

    def on_exception(self, error: BaseException, run_state: Any, ctx: Any) -> None:
        self._note("on_exception", type(error).__name__)

    def callback_state(self) -> dict[str, Any]:
        self._note("callback_state", self._batches)
        return {"batches": self._batches}

    def load_callback_state(self, payload: Mapping[str, Any]) -> None:
        self._batches = payload["batches"]
        self._note("load_callback_state", self._batches)


class TwoHooks:
    """A callback of two hooks, so that the others have nobody."""

    def on_batch_end(self, result: Any, run_state: Any, ctx: Any) -> None:
        CALLS.append(f"on_batch_end {type(result).__name__}")

    def on_train_end(self, run_state: Any) -> None:
        CALLS.append(f"history {[(point.step, point.value) for point in run_state.history.get('train/loss', ())]}")
        CALLS.append(f"metrics {dict(run_state.metrics)}")
        CALLS.append(f"seen {run_state.samples_seen}")


class StopFromAnotherThread:
    """Asks to stop from a thread, when a step is done: while the trainer's backoff is being waited for."""

    def on_batch_end(self, run_state: Any, ctx: Any) -> None:
        threading.Timer(0.05, ctx.request_stop, args=("called off",)).start()


class StopTwice:
    """Asks twice to stop in the first step."""

    def on_batch_end(self, run_state: Any, ctx: Any) -> None:
        if run_state.step == 1:
            ctx.request_stop("first")
            ctx.request_stop("second")


class NoOpinion:
    """Leaves the device to others."""

    def select_device(self, available: Any) -> None:
        CALLS.append("select_device none")


class ChoosesCpu:
    """Is for the CPU."""

    def select_device(self, job: Any, available: Any, local_rank: int) -> str:
        CALLS.append("select_device cpu")
        return "cpu"


class ChoosesNonsense:
    """Is for a device that is not there."""

    def select_device(self, job: Any) -> str:
        CALLS.append("select_device nonsense")
        return "cuda:99"


class Hesitates:
    """Cannot choose a device."""

    def select_device(self, job: Any) -> str:
        raise ValueError("hard to say")


class BrokenSource:
    """A data source that raises."""

    @attrs.frozen(kw_only=True)
    class Settings:
        how: str = ""

    def __init__(self, *, settings: Settings) -> None:
        self._how = settings.how

    def open_dataset(self, dataset: Any) -> Any:
        if self._how == "quit":
            sys.exit(3)
        if self._how == "interrupt":
            raise KeyboardInterrupt
        if self._how == "settings":
            raise InvalidSettings("/how", "that is not how")
        return {}["index"]


class Mute(Exception):
    """An exception without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class RaisesMute:
    """A callback that raises it."""

    def on_batch_end(self) -> None:
        raise Mute


class WatchRecorded:
    """Writes down the steps that it is called around."""

    @hookimpl(wrapper=True)
    @when_recorded
    def train_step(self, ctx: Any) -> Any:
        CALLS.append(f"recorded {ctx.run_state.step + 1}")
        return (yield)
