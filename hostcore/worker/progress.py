"""The run state and the hand that moves it: plugins hold the frozen :class:`RunState`, the host this."""

from collections.abc import Mapping
from typing import Any

from hostcore.worker.metrics import History, remember
from hostcore_hookspecs.run_state import Checkpoint, RunState, StopRequest

_set = object.__setattr__  # the one way into a frozen class


class Progress:
    """Advances a run state in place; everybody who holds it sees it move."""

    def __init__(self) -> None:
        self._history: History = {}
        self.state = RunState(history=self._history)

    def advance(self, rows: int) -> int:
        """Count a finished step of this many rows.

        :return: Finished steps.
        """
        state = self.state
        step = state.step + 1
        _set(state, "step", step)
        _set(state, "batch_in_epoch", state.batch_in_epoch + 1)
        _set(state, "samples_seen", state.samples_seen + rows)
        return step

    def next_epoch(self) -> None:
        """Move to the first batch of the next epoch."""
        _set(self.state, "epoch", self.state.epoch + 1)
        _set(self.state, "batch_in_epoch", 0)

    def remember(self, metrics: Mapping[str, float]) -> None:
        """Make metrics the last ones, and add them to the history."""
        _set(self.state, "metrics", dict(metrics))
        remember(self._history, metrics, self.state.step)

    def note_stop(self, reason: str, requested_by: str) -> None:
        """Add a request to stop."""
        request = StopRequest(reason=reason, requested_by=requested_by)
        _set(self.state, "stop_requests", (*self.state.stop_requests, request))

    def note_checkpoints(self, checkpoints: tuple[Checkpoint, ...]) -> None:
        """Set the checkpoints that exist."""
        _set(self.state, "checkpoints", checkpoints)

    def stored(self) -> dict[str, Any]:
        """What a checkpoint keeps, as a tree."""
        state = self.state
        return {
            "step": state.step,
            "epoch": state.epoch,
            "batch_in_epoch": state.batch_in_epoch,
            "samples_seen": state.samples_seen,
            "metrics": dict(state.metrics),
            "history": {name: [tuple(point) for point in points] for name, points in self._history.items()},
        }

    def load(self, stored: Mapping[str, Any]) -> None:
        """Bring back what :meth:`stored` gave."""
        for name in ("step", "epoch", "batch_in_epoch", "samples_seen", "metrics"):
            _set(self.state, name, stored[name])
        for name, points in stored["history"].items():
            for step, value in points:
                remember(self._history, {name: value}, step)
