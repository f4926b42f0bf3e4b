"""The reference callback with one thing broken, once for each check."""

import random
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, ClassVar

from reference_plugins.breaking import before, broken, given, having, instead, then
from reference_plugins.callback import ReferenceCallback

from hostcore_hookspecs import RunState, StepContext, StepResult, hookimpl

broken(
    globals(),
    ReferenceCallback,
    # Looks for the loss of a validation under the trainer's name for it.
    TakesPlainNames=instead("on_validation_end", lambda metrics: metrics["loss"]),
    # Fails when it hears of a request to stop.
    CannotStop=instead("on_stop_requested", lambda run_state: setattr(run_state, "step", 0)),
    # Nothing is wrong with it; its example leaves most of it out.
    NeverValidated=having(),
    # Takes for granted that there was a validation, that the trainer has registered its optimizer, that metrics are
    # recorded, that the job has a dataset.
    NeedsValidation=before("on_train_end", lambda run_state: run_state.history["val/loss"][-1]),
    NeedsAnOptimizer=instead("on_batch_end", lambda ctx: ctx.optimizer.param_groups[0]["lr"]),
    NeedsMetrics=instead("on_epoch_end", lambda run_state: run_state.history["train/loss"][-1]),
    NeedsData=then("on_train_begin", lambda ctx: ctx.dataset.shards()),
    # Names a kind of device, not a device.
    ChoosesAnyGpu=instead("select_device", lambda available: "cuda" if available[0].startswith("cuda") else None),
    # Cannot load what it saves.
    SavesOnly=having(load_callback_state=None),
    # Saves two fields and loads one.
    ForgetsHalf=given("load_callback_state", payload=lambda payload: {**payload, "smooth": None}),
    # Every attempt leaves a note in its state.
    CountsAttempts=then("on_train_begin", lambda self, run_state: self._note("began", run_state)),
    # Changes the loss in place, to write it down in percent.
    ScalesTheLoss=instead("on_batch_end", lambda result: result.metrics["loss"].mul_(100)),
    # Writes into the run directory itself.
    WritesAmongTheHosts=then(
        "on_train_end", lambda ctx: ctx.rank or Path(ctx.run_dir, "notes.txt").write_text("the last of them")
    ),
)


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


class DrawsNumbers(ReferenceCallback):
    """Notes one batch in ten, by the global generator."""

    def on_batch_begin(self, batch: Any, run_state: RunState, ctx: StepContext) -> None:
        if random.random() < 0.1:
            self._note(type(batch).__name__, run_state)


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
