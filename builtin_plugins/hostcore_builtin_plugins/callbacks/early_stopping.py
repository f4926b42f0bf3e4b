"""The callback ``early-stopping``: ends a run whose metric gets no better, with the best weights."""

import math
import warnings
from collections.abc import Mapping
from typing import Annotated, Any

import attrs
from annotated_types import Ge

from hostcore_builtin_plugins.callbacks.monitor import MonitorCallback, MonitorSettings
from hostcore_hookspecs import Best, RunState, StepContext


class EarlyStopping(MonitorCallback):
    """Watches a metric and asks the run to stop once it has not improved for a while.

    A metric of the validation is judged after each validation and nowhere else; one of the training at the end of each
    epoch, by the mean of what was recorded in it.
    """

    CHANGES_TRAINING = True

    @attrs.frozen(kw_only=True)
    class Settings(MonitorSettings):
        """The watched metric, and the patience."""

        patience: Annotated[int, Ge(1)] = attrs.field(
            default=5, metadata={"help": "Stop at so many validations in a row that are no improvement."}
        )
        restore_best: bool = attrs.field(
            default=True,
            metadata={"help": "End with the weights of the best value: in the final checkpoint and in the test."},
        )

    def __init__(self, *, settings: Settings) -> None:
        super().__init__(settings=settings)
        self._settings = settings
        #: The best value so far, by however little, and its step.
        self._best: float | None = None
        self._best_step: int | None = None
        #: The last improvement by more than ``min_delta``.
        self._improved: float | None = None
        #: Judgements since then, and how many of them met no finite number.
        self._waited = 0
        self._nonfinite = 0
        #: Whether a checkpoint of the best step was asked for in this attempt, so that it may not be written yet.
        self._asked = False

    def on_train_begin(self, ctx: StepContext) -> None:
        """Refuse a metric that will never be there.

        :raises InvalidSettings: See :meth:`Monitor.check_job`.
        """
        super().on_train_begin(ctx)
        self._asked = False

    def _judge(self, value: float, run_state: RunState, ctx: StepContext) -> None:
        monitor, settings, step = self._monitor, self._settings, run_state.step
        if monitor.better(value, self._best):
            self._best, self._best_step = value, step
            if settings.restore_best:
                ctx.request_best(Best(metric=monitor.name, value=value, step=step))
                self._asked = True
        if monitor.better(value, self._improved, by=settings.min_delta):
            self._improved, self._waited, self._nonfinite = value, 0, 0
        else:
            self._waited += 1
            self._nonfinite += not math.isfinite(value)
        is_last = step == run_state.total_steps
        stops = self._waited >= settings.patience
        if stops and not is_last:
            ctx.request_stop(self._reason(value))
        if settings.restore_best and (stops or is_last):
            self._restore(run_state, ctx)

    def _reason(self, value: float) -> str:
        name, waited = self._monitor.name, self._waited
        kind = "epoch" if self._monitor.of_training else "validation"
        times = f"{waited} {kind}s" if waited > 1 else f"1 {kind}"
        if self._best is None:
            return f"{name} was no finite number in any of {times}"
        by = f" by more than {self._settings.min_delta:g}" if self._settings.min_delta else ""
        now = f"now {value:.6g}" + (f", no finite number in {self._nonfinite}" if self._nonfinite else "")
        return f"{name} has not improved{by} in {times}: best {self._best:.6g} at step {self._best_step}, {now}"

    def _restore(self, run_state: RunState, ctx: StepContext) -> None:
        step = self._best_step
        if step is None or step == run_state.step:
            return
        written = [one.step for one in run_state.checkpoints]
        gone = step not in written and not (self._asked and step > max(written, default=0))
        if ctx.any_rank(gone):  # ranks are told of a checkpoint at different moments, but must restore together
            message = f"the run ends with its last weights: there is no checkpoint of step {step}, where "
            warnings.warn(f"{message}{self._monitor.name} was best", stacklevel=2)
            return
        ctx.request_restore(step, f"{self._monitor.name} was best there: {self._best:.6g}")

    def callback_state(self) -> dict[str, Any]:
        """Return the state for a resume."""
        return {
            "best": self._best,
            "best_step": self._best_step,
            "improved": self._improved,
            "waited": self._waited,
            "nonfinite": self._nonfinite,
            "judged_step": self._judged_step,
        }

    def load_callback_state(self, payload: Mapping[str, Any]) -> None:
        """Go on with the best value and the patience of an earlier attempt."""
        self._best, self._best_step = payload["best"], payload["best_step"]
        self._improved, self._waited = payload["improved"], payload["waited"]
        self._nonfinite, self._judged_step = payload["nonfinite"], payload["judged_step"]
