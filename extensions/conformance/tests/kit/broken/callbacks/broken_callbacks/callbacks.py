"""The reference callback with one thing broken, once for each check."""

import random
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from reference_plugins.callback import ReferenceCallback

from hostcore_hookspecs import Job, RunState, StepContext, StepResult, hookimpl


class TakesPlainNames(ReferenceCallback):
    """Looks for the loss of a validation under the trainer's name for it."""

    def on_validation_end(self, metrics: Mapping[str, float], run_state: RunState, ctx: StepContext) -> None:
        self._smooth = metrics["loss"]


class CannotStop(ReferenceCallback):
    """Fails when it hears of a request to stop."""

    def on_stop_requested(self, reason: str, requested_by: str, run_state: RunState, ctx: StepContext) -> None:
        run_state.step = 0  # type: ignore[misc]


class NeverValidated(ReferenceCallback):
    """Nothing is wrong with it; its example leaves most of it out."""


class Swallows(ReferenceCallback):
    """Catches whatever a step raises."""

    @hookimpl(wrapper=True)
    def train_step(self, ctx: StepContext) -> Generator[None, Any, StepResult]:
        try:
            return (yield)
        except Exception:  # noqa: BLE001
            return StepResult(metrics={"loss": 0.0})


class FailsAgain(ReferenceCallback):
    """Closes in on_exception what it never opened."""

    def on_exception(self, error: BaseException, run_state: RunState, ctx: StepContext) -> None:
        super().on_exception(error, run_state, ctx)
        self._file.close()


class NeedsValidation(ReferenceCallback):
    """Takes for granted that there was a validation."""

    def on_train_end(self, run_state: RunState, ctx: StepContext) -> None:
        self._smooth = run_state.history["val/loss"][-1].value
        super().on_train_end(run_state, ctx)


class NeedsAnOptimizer(ReferenceCallback):
    """Takes for granted that the trainer has registered its optimizer."""

    def on_batch_end(self, result: StepResult, run_state: RunState, ctx: StepContext) -> None:
        self._smooth = float(ctx.optimizer.param_groups[0]["lr"])  # type: ignore[union-attr]


class NeedsMetrics(ReferenceCallback):
    """Takes for granted that metrics are recorded."""

    def on_epoch_end(self, run_state: RunState, ctx: StepContext) -> None:
        self._smooth = run_state.history["train/loss"][-1].value


class NeedsData(ReferenceCallback):
    """Takes for granted that the job has a dataset."""

    def on_train_begin(self, run_state: RunState, ctx: StepContext) -> None:
        super().on_train_begin(run_state, ctx)
        self._note(f"{len(ctx.dataset.shards())} shards", run_state)  # type: ignore[union-attr]


class ChoosesAnyGpu(ReferenceCallback):
    """Names a kind of device, not a device."""

    def select_device(self, job: Job, available: Sequence[str], local_rank: int) -> str | None:
        return "cuda" if available[0].startswith("cuda") else None


class SavesOnly(ReferenceCallback):
    """Cannot load what it saves."""

    load_callback_state = None  # type: ignore[assignment]


class ForgetsHalf(ReferenceCallback):
    """Saves two fields and loads one."""

    def load_callback_state(self, payload: Mapping[str, Any]) -> None:
        self._notes = list(payload["notes"])


class SharesItsNotes(ReferenceCallback):
    """The notes belong to the class."""

    _shared: ClassVar[list[str]] = []

    def __init__(self, *, settings: ReferenceCallback.Settings) -> None:
        super().__init__(settings=settings)
        self._notes = self._shared

    def _note(self, what: str, run_state: RunState) -> None:
        self._notes.append(what)


class BeginsAnew(ReferenceCallback):
    """Lowers the learning rate after four steps, counted from the start of the process."""

    CHANGES_TRAINING = True

    def __init__(self, *, settings: ReferenceCallback.Settings) -> None:
        super().__init__(settings=settings)
        self._steps = 0

    def on_batch_end(self, result: StepResult, run_state: RunState, ctx: StepContext) -> None:
        self._steps += 1
        if self._steps == 4 and ctx.optimizer is not None:
            for group in ctx.optimizer.param_groups:
                group["lr"] /= 2


class CountsAttempts(ReferenceCallback):
    """Every attempt leaves a note in its state."""

    def on_train_begin(self, run_state: RunState, ctx: StepContext) -> None:
        super().on_train_begin(run_state, ctx)
        self._note("began", run_state)


class DrawsNumbers(ReferenceCallback):
    """Notes one batch in ten, by the global generator."""

    def on_batch_begin(self, batch: Any, run_state: RunState, ctx: StepContext) -> None:
        if random.random() < 0.1:
            self._note(type(batch).__name__, run_state)


class ScalesTheLoss(ReferenceCallback):
    """Changes the loss in place, to write it down in percent."""

    def on_batch_end(self, result: StepResult, run_state: RunState, ctx: StepContext) -> None:
        loss: Any = result.metrics.get("loss")
        self._smooth = float(loss.mul_(100))


class LooksBack(ReferenceCallback):
    """Trains more slowly with every run of the process."""

    CHANGES_TRAINING = True
    runs: ClassVar[int] = 0

    def on_train_begin(self, run_state: RunState, ctx: StepContext) -> None:
        super().on_train_begin(run_state, ctx)
        type(self).runs += 1
        if ctx.optimizer is not None:
            for group in ctx.optimizer.param_groups:
                group["lr"] /= self.runs


class WritesAmongTheHosts(ReferenceCallback):
    """Writes into the run directory itself."""

    def on_train_end(self, run_state: RunState, ctx: StepContext) -> None:
        super().on_train_end(run_state, ctx)
        if ctx.rank == 0:
            Path(ctx.run_dir, "notes.txt").write_text("\n".join(self._notes))


class EveryRankWrites(ReferenceCallback):
    """All ranks write one file."""

    def on_train_end(self, run_state: RunState, ctx: StepContext) -> None:
        super().on_train_end(run_state, ctx)
        folder = Path(ctx.run_dir, "reference-notes")
        folder.mkdir(exist_ok=True)
        (folder / "summary.txt").write_text("\n".join(self._notes))


class LeavesAThread(ReferenceCallback):
    """Starts a thread that nobody ends."""

    def on_train_begin(self, run_state: RunState, ctx: StepContext) -> None:
        super().on_train_begin(run_state, ctx)
        self._over = threading.Event()
        threading.Thread(target=self._over.wait, args=(600.0,), daemon=True, name="notes").start()


class LeavesAThreadBehindAnError(LeavesAThread):
    """Ends its thread when the run comes to its end, and only then."""

    def on_train_end(self, run_state: RunState, ctx: StepContext) -> None:
        super().on_train_end(run_state, ctx)
        self._over.set()
        for thread in threading.enumerate():
            if thread.name == "notes":
                thread.join(1.0)
