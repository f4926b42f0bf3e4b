"""The callback ``best-checkpoint``: keeps the checkpoint at which a metric was best."""

from collections.abc import Mapping
from typing import Any

from hostcore_builtin_plugins.callbacks.monitor import MonitorCallback, MonitorSettings
from hostcore_hookspecs import Best, RunState, StepContext


class BestCheckpoint(MonitorCallback):
    """Has a checkpoint written whenever a metric was never better; the host keeps it until there is a better one."""

    Settings = MonitorSettings

    def __init__(self, *, settings: MonitorSettings) -> None:
        super().__init__(settings=settings)
        self._min_delta = settings.min_delta
        self._best: float | None = None

    def _judge(self, value: float, run_state: RunState, ctx: StepContext) -> None:
        if self._monitor.better(value, self._best, by=self._min_delta):
            self._best = value
            ctx.request_best(Best(metric=self._monitor.name, value=value, step=run_state.step))

    def callback_state(self) -> dict[str, Any]:
        """Return the state for a resume."""
        return {"best": self._best, "judged_step": self._judged_step}

    def load_callback_state(self, payload: Mapping[str, Any]) -> None:
        """Go on with the best value of an earlier attempt."""
        self._best, self._judged_step = payload["best"], payload["judged_step"]
