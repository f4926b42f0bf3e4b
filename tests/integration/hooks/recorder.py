"""A trainer and a callback that write down every call and where the run stands; the job says what else they do."""

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from hostcore_hookspecs import Capabilities, StepResult, hookimpl

#: Every call since the test began, a line each.
CALLS: list[str] = []


@attrs.frozen(kw_only=True)
class Acts:
    """What happens in some of the calls, beside that they are written down."""

    #: ``raise``, ``stop`` or ``interrupt``, by call and finished steps: ``{"train_step at 2": "raise"}``. Once each.
    acts: Mapping[str, str] = attrs.field(factory=dict)


class Recorder:
    """Writes calls down."""

    def __init__(self, who: str, acts: Mapping[str, str]) -> None:
        self._who = who
        self._acts = dict(acts)

    def note(self, call: str, ctx: Any, about: str = "") -> None:
        state = ctx.run_state
        place = f"{state.step:>4} {state.epoch:>5} {state.batch_in_epoch:>5}"
        CALLS.append(f"{place}  {self._who}.{call} {about}".rstrip())
        act = self._acts.pop(f"{call} at {state.step}", None)
        if act == "raise":
            raise ValueError(f"{call} went wrong")
        if act == "stop":
            ctx.request_stop(f"{call} has seen enough")
        if act == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C


def rows_of(raw_batch: Any) -> list[int]:
    return raw_batch.column("row").to_pylist()


class Trainer:
    """All methods of the contract. Counts its steps; the loss of a batch is the mean of its rows."""

    CAPABILITIES = Capabilities(accumulate=True)
    Hyperparams = Acts

    def setup(self, ctx: Any) -> None:
        self._ctx = ctx
        self._recorder = Recorder("trainer", ctx.hyperparams.acts)
        self._note("setup")

    def _note(self, call: str, about: str = "") -> None:
        self._recorder.note(call, self._ctx, about)

    def configure(self, ctx: Any) -> dict[str, Any]:
        self._note("configure")
        return {"steps": 0}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> list[int]:
        _wait_for_the_disk()
        rows = rows_of(raw_batch)
        self._note("prepare_batch", f"{rows}")
        return rows

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        self._note("train_step", f"{prepared_batch}")
        state["steps"] += 1
        return StepResult(metrics={"loss": float(state["steps"])})

    def validate_step(self, prepared_batch: list[int], state: Any, ctx: Any) -> StepResult:
        self._note("validate_step", f"{prepared_batch}")
        return StepResult(metrics={"loss": sum(prepared_batch) / len(prepared_batch)})

    def test_step(self, prepared_batch: list[int], state: Any, ctx: Any) -> StepResult:
        self._note("test_step", f"{prepared_batch}")
        return StepResult(metrics={"loss": sum(prepared_batch) / len(prepared_batch)})

    def evaluation_metrics(self, state: Any, ctx: Any) -> dict[str, float]:
        self._note("evaluation_metrics")
        return {"steps": float(state["steps"])}

    def generate_sample(self, state: Any, step: int, request: Any, output_dir: str, ctx: Any) -> dict[str, Any]:
        self._note("generate_sample", request.prompt)
        Path(output_dir, "text.txt").write_text(f"{request.prompt} at {step}")
        return {"letters": len(request.prompt or "")}

    def state_dict(self, state: dict[str, Any]) -> dict[str, object]:
        self._note("state_dict")
        return dict(state)

    def load_state_dict(self, state: dict[str, Any], payload: dict[str, Any], ctx: Any) -> None:
        self._note("load_state_dict", f"of step {payload['steps']}")
        state.update(payload)

    def save_checkpoint(self, state: Any, step: int, output_dir: str, final: bool, ctx: Any) -> None:
        self._note("save_checkpoint", f"of step {step}{', final' if final else ''}")

    def load_checkpoint(self, state: Any, checkpoint_dir: str, payload: Any, ctx: Any) -> None:
        self._note("load_checkpoint", Path(checkpoint_dir).parent.name)

    def teardown(self, state: Any, ctx: Any) -> None:
        self._note("teardown")


class Transforming(Trainer):
    """Has a transform too."""

    def transform_batch(self, raw_batch: Any, rng: Any, ctx: Any) -> Any:
        self._note("transform_batch", f"{rows_of(raw_batch)}")
        return raw_batch


def _wait_for_the_disk() -> None:
    """A checkpoint is committed in the background. Here it always is when the next batch is prepared."""
    for thread in threading.enumerate():
        if thread.name.startswith("checkpoint of step"):
            thread.join()


class Callback:
    """Every lifecycle hook, and a state: how many batches it has seen."""

    @attrs.frozen(kw_only=True)
    class Settings(Acts):
        name: str = "callback"

    def __init__(self, *, settings: Settings) -> None:
        self._recorder = Recorder(settings.name, settings.acts)
        self._batches = 0
        self._ctx: Any = None

    def on_train_begin(self, ctx: Any) -> None:
        self._ctx = ctx
        self._recorder.note("on_train_begin", ctx)

    def on_train_end(self, ctx: Any) -> None:
        self._recorder.note("on_train_end", ctx)

    def on_epoch_begin(self, ctx: Any) -> None:
        self._recorder.note("on_epoch_begin", ctx)

    def on_epoch_end(self, ctx: Any) -> None:
        self._recorder.note("on_epoch_end", ctx)

    def on_batch_begin(self, batch: Any, ctx: Any) -> None:
        self._recorder.note("on_batch_begin", ctx, f"{batch}")

    def on_batch_end(self, result: Any, ctx: Any) -> None:
        self._batches += 1
        self._recorder.note("on_batch_end", ctx, _listed(result.metrics))

    def on_sanity_checked(self, metrics: Any, ctx: Any) -> None:
        self._recorder.note("on_sanity_checked", ctx, _listed(metrics))

    def on_validation_begin(self, ctx: Any) -> None:
        self._recorder.note("on_validation_begin", ctx)

    def on_validation_end(self, metrics: Any, ctx: Any) -> None:
        self._recorder.note("on_validation_end", ctx, _listed(metrics))

    def on_test_begin(self, ctx: Any) -> None:
        self._recorder.note("on_test_begin", ctx)

    def on_test_end(self, metrics: Any, ctx: Any) -> None:
        self._recorder.note("on_test_end", ctx, _listed(metrics))

    def on_checkpoint_saved(self, checkpoint: Any, ctx: Any) -> None:
        self._recorder.note(
            "on_checkpoint_saved", ctx, f"of step {checkpoint.step}{', final' if checkpoint.final else ''}"
        )

    def on_sample_saved(self, sample: Any, ctx: Any) -> None:
        place = "/".join(Path(sample.path).parts[-3:])
        self._recorder.note("on_sample_saved", ctx, f"{place} {_listed(sample.info)}")

    def on_stop_requested(self, reason: str, requested_by: str, ctx: Any) -> None:
        self._recorder.note("on_stop_requested", ctx, f"{reason} ({requested_by})")

    def on_exception(self, error: BaseException, ctx: Any) -> None:
        self._recorder.note("on_exception", ctx, f"{type(error).__name__}: {error}")

    def callback_state(self) -> dict[str, Any]:
        self._recorder.note("callback_state", self._ctx, f"{self._batches} batches")
        return {"batches": self._batches}

    def load_callback_state(self, payload: Mapping[str, Any]) -> None:
        self._batches = payload["batches"]
        CALLS.append(f"{'':14}  callback.load_callback_state {self._batches} batches")


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in values.items())


class Wrapper:
    """Wraps methods of the trainer."""

    @attrs.frozen(kw_only=True)
    class Settings:
        name: str

    def __init__(self, *, settings: Settings) -> None:
        self._name = settings.name

    @hookimpl(wrapper=True)
    def train_step(self) -> Any:
        CALLS.append(f"{self._name} begins train_step")
        result = yield
        CALLS.append(f"{self._name} ends train_step")
        return result

    @hookimpl(wrapper=True)
    def validate_step(self) -> Any:
        CALLS.append(f"{self._name} begins validate_step")
        result = yield
        CALLS.append(f"{self._name} ends validate_step")
        return attrs.evolve(result, metrics={"loss": result.metrics["loss"] + 1})
