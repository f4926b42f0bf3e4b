"""The callback ``reference``: watches the loss, and writes down what it has seen."""

import json
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore_hookspecs import (
    Checkpoint,
    GeneratedSample,
    Job,
    RunState,
    StepContext,
    StepResult,
    hookimpl,
)


class ReferenceCallback:
    """Implements every lifecycle hook, wraps a method of the trainer, keeps a state and writes a file."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """What is written down, and how much of it."""

        keep: int = 100
        metric: str = "smooth_loss"

    def __init__(self, *, settings: Settings) -> None:
        self._settings = settings
        #: The newest notes; the file has all of this attempt.
        self._notes: list[str] = []
        self._smooth: float | None = None
        self._file: Any = None

    def select_device(self, job: Job, available: Sequence[str], local_rank: int) -> str | None:
        """The last resort."""
        return "cpu" if job.precision == "fp32" and "cpu" in available else None

    def on_train_begin(self, run_state: RunState, ctx: StepContext) -> None:
        """Open the file, on the first rank alone."""
        if ctx.rank == 0 and ctx.run_dir:
            folder = Path(ctx.run_dir, "reference-notes")
            folder.mkdir(exist_ok=True)
            self._file = Path(folder, "notes.jsonl").open("a", encoding="utf-8")  # noqa: SIM115 - till the end

    def on_train_end(self, run_state: RunState, ctx: StepContext) -> None:
        """Close the file."""
        self._note("end", run_state)
        self._close()

    def on_exception(self, error: BaseException, run_state: RunState, ctx: StepContext) -> None:
        """Close the file, if there is one by now."""
        self._note(f"failed: {type(error).__name__}", run_state)
        self._close()

    def on_epoch_begin(self, run_state: RunState, ctx: StepContext) -> None:
        """Note it."""
        self._note(f"epoch {run_state.epoch}", run_state)

    def on_epoch_end(self, run_state: RunState, ctx: StepContext) -> None:
        """Note it."""
        self._note(f"end of epoch {run_state.epoch}", run_state)

    def on_batch_begin(self, batch: Any, run_state: RunState, ctx: StepContext) -> None:
        """Note what kind of batch it is."""
        self._note(type(batch).__name__, run_state)

    def on_batch_end(self, result: StepResult, run_state: RunState, ctx: StepContext) -> None:
        """Smooth the loss."""
        loss = result.metrics.get("loss")
        if loss is not None:
            self._smooth = float(loss) if self._smooth is None else 0.9 * self._smooth + 0.1 * float(loss)

    def on_sanity_checked(self, metrics: Mapping[str, float], run_state: RunState, ctx: StepContext) -> None:
        """Note their names."""
        self._note(f"validation reports {sorted(metrics)}", run_state)

    def on_validation_begin(self, run_state: RunState, ctx: StepContext) -> None:
        """Note it."""
        self._note("validation", run_state)

    def on_validation_end(self, metrics: Mapping[str, float], run_state: RunState, ctx: StepContext) -> None:
        """Note its metrics."""
        self._note(f"validation {dict(metrics)}", run_state)

    def on_test_begin(self, run_state: RunState, ctx: StepContext) -> None:
        """Note it."""
        self._note("test", run_state)

    def on_test_end(self, metrics: Mapping[str, float], run_state: RunState, ctx: StepContext) -> None:
        """Note its metrics."""
        self._note(f"test {dict(metrics)}", run_state)

    def on_checkpoint_saved(self, checkpoint: Checkpoint, run_state: RunState, ctx: StepContext) -> None:
        """Nothing: when this is called depends on the disk, so it must leave no trace in the state."""

    def on_sample_saved(self, sample: GeneratedSample, run_state: RunState, ctx: StepContext) -> None:
        """Note it."""
        self._note(f"sample {sample.request.prompt}", run_state)

    def on_stop_requested(self, reason: str, requested_by: str, run_state: RunState, ctx: StepContext) -> None:
        """Note it."""
        self._note(f"stop: {reason}", run_state)

    @hookimpl(wrapper=True)
    def train_step(self, ctx: StepContext) -> Generator[None, Any, StepResult]:
        """Add the smooth loss to the metrics that are recorded."""
        result: StepResult = yield
        if self._smooth is None:
            return result
        return attrs.evolve(result, metrics={**result.metrics, self._settings.metric: self._smooth})

    def callback_state(self) -> dict[str, Any]:
        """The notes and the smooth loss."""
        return {"notes": list(self._notes), "smooth": self._smooth}

    def load_callback_state(self, payload: Mapping[str, Any]) -> None:
        """Go on with them."""
        self._notes, self._smooth = list(payload["notes"]), payload["smooth"]

    def _note(self, what: str, run_state: RunState) -> None:
        kept = [*self._notes, f"{run_state.step}: {what}"]
        self._notes = kept[-self._settings.keep :]
        if self._file is not None:
            self._file.write(json.dumps([run_state.step, what]) + "\n")

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
