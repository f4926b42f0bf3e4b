"""The callback ``best-checkpoint``: keeps the checkpoint at which a metric was best."""

from collections.abc import Mapping
from typing import Annotated, Any

import attrs
from annotated_types import Ge

from hostcore_builtin_plugins.callbacks.monitor import Mode, Monitor
from hostcore_hookspecs import Best, RunState, StepContext


class BestCheckpoint:
    """Has a checkpoint written whenever a metric was never better; the host keeps it until there is a better one."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """The watched metric."""

        monitor: str = attrs.field(
            default="val/loss",
            metadata={
                "help": "The metric. A name without a slash gains `val/`; one that begins with `train/` is a training "
                "metric, judged at the end of each epoch."
            },
        )
        min_delta: Annotated[float, Ge(0)] = attrs.field(
            default=0.0, metadata={"help": "Better is what is better by more than this."}
        )
        mode: Mode = attrs.field(
            default="auto",
            metadata={
                "help": "Whether less (`min`) or more (`max`) is better. `auto`: `min` for a name with `loss`, `error` "
                "or `perplexity` in it, `max` for one with `accuracy`; any other name needs a word."
            },
        )

    def __init__(self, *, settings: Settings) -> None:
        self._min_delta = settings.min_delta
        self._monitor = Monitor.of(settings.monitor, settings.mode)
        self._best: float | None = None
        self._seen = False
        self._judged_step = 0

    def on_train_begin(self, ctx: StepContext) -> None:
        """Refuse a metric that will never be there.

        :raises InvalidSettings: See :meth:`Monitor.check_job`.
        """
        self._monitor.check_job(ctx)

    def on_sanity_checked(self, metrics: Mapping[str, float]) -> None:
        """Refuse a metric that the validation does not report.

        :raises InvalidSettings: See :meth:`Monitor.check_sanity`.
        """
        self._monitor.check_sanity(metrics)

    def on_validation_end(self, metrics: Mapping[str, float], run_state: RunState, ctx: StepContext) -> None:
        """Judge a metric of the validation.

        :raises InvalidSettings: When the first validation does not report it.
        """
        if not self._monitor.of_training:
            self._judge(self._monitor.in_validation(metrics, required=not self._seen), run_state, ctx)

    def on_epoch_end(self, run_state: RunState, ctx: StepContext) -> None:
        """Judge a training metric, if it was recorded since the last time.

        :raises InvalidSettings: When others were recorded, but never this one.
        """
        if self._monitor.of_training:
            value = self._monitor.in_training(run_state, ctx, after=self._judged_step)
            if value is not None:
                self._judge(value, run_state, ctx)

    def _judge(self, value: float, run_state: RunState, ctx: StepContext) -> None:
        self._seen, self._judged_step = True, run_state.step
        if self._monitor.better(value, self._best, by=self._min_delta):
            self._best = value
            ctx.request_best(Best(metric=self._monitor.name, value=value, step=run_state.step))

    def callback_state(self) -> dict[str, Any]:
        """Return the state for a resume."""
        return {"best": self._best, "seen": self._seen, "judged_step": self._judged_step}

    def load_callback_state(self, payload: Mapping[str, Any]) -> None:
        """Go on with the best value of an earlier attempt."""
        self._best, self._seen, self._judged_step = payload["best"], payload["seen"], payload["judged_step"]
