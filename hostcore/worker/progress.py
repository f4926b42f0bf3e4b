"""The progress of a run: the host advances it, and plugins read it through the frozen :class:`RunState`."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, Final

import attrs
import numpy as np

from hostcore.plugins.load import Component
from hostcore.worker.feed.feed import Cursor, Stream
from hostcore.worker.metrics import History, remember
from hostcore_hookspecs.run_state import Best, Checkpoint, MetricPoint, RunState, StopRequest

_set = object.__setattr__  # the one way into a frozen class
# For what changes at every step: half the cost.
_set_step = vars(RunState)["step"].__set__
_set_batch_in_epoch = vars(RunState)["batch_in_epoch"].__set__
_set_samples_seen = vars(RunState)["samples_seen"].__set__
#: How long metrics are waited for when the run ends in an error: another rank may never send its own.
_LAST_SECONDS: Final = 1.0


class LateRunState(RunState):
    """A run state whose metrics may still be on their way from other ranks: who reads them waits for them."""

    def settle(self) -> None:
        """Wait for what is on its way: nothing, in a copy. The progress puts its own here."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """See :class:`RunState`."""
        self.settle()
        return _METRICS(self)  # type: ignore[no-any-return]

    @metrics.setter
    def metrics(self, value: Mapping[str, float]) -> None:
        RunState.metrics.__set__(self, value)  # type: ignore[attr-defined]

    @property
    def history(self) -> Mapping[str, Sequence[MetricPoint]]:
        """See :class:`RunState`."""
        self.settle()
        return _HISTORY(self)  # type: ignore[no-any-return]

    @history.setter
    def history(self, value: Mapping[str, Sequence[MetricPoint]]) -> None:
        RunState.history.__set__(self, value)  # type: ignore[attr-defined]


_METRICS, _HISTORY = RunState.metrics.__get__, RunState.history.__get__  # type: ignore[attr-defined]


class CallbackStates(Mapping[str, Mapping[str, Any]]):
    """The states of callbacks by name; each is asked for when it is read, so that steps cost nothing."""

    def __init__(self, callbacks: Iterable[Component]) -> None:
        """Name the callbacks, all of which keep a state."""
        self._instances: dict[str, Any] = {}
        counts = Counter[str]()
        for callback in callbacks:
            name = callback.ref.name
            counts[name] += 1
            self._instances[name if counts[name] == 1 else f"{name}#{counts[name]}"] = callback.instance

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self._instances[name].callback_state()
        return state

    def __iter__(self) -> Iterator[str]:
        return iter(self._instances)

    def __len__(self) -> int:
        return len(self._instances)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return dict, (dict(self),)  # a copy holds the states of its moment, not the callbacks


class TrainingProgress:
    """Advances a run state in place; all holders of it see the change.

    The metrics of a step may be on their way while the training continues (:meth:`expect`). Nobody notices: reading the
    run state's metrics or history, adding to them, and storing the progress all wait for what is on its way.
    """

    def __init__(
        self,
        rows_per_step: int = 1,
        total_steps: int = 0,
        *,
        several_ranks: bool = False,
        callbacks: Iterable[Component] = (),
    ) -> None:
        """Begin at step 0.

        :param rows_per_step: Rows of a step over all ranks.
        :param total_steps: The step after which the run is complete; 0: it has none.
        :param several_ranks: Whether metrics may come late.
        :param callbacks: Those that keep a state.
        """
        self._rows_per_step = rows_per_step
        self._history: History = {}
        #: The digest of the rows before the stream that is being read.
        self._digest = 0
        self._stream: Stream | None = None
        #: The step of the metrics that are on their way, and they.
        self._late: tuple[int, Future[dict[str, float]]] | None = None
        self._settling = threading.RLock()
        self.state = (LateRunState if several_ranks else RunState)(
            history=self._history, total_steps=total_steps, callback_states=CallbackStates(callbacks)
        )
        if isinstance(self.state, LateRunState):
            _set(self.state, "settle", self.settle)
        #: The best value of each metric that a callback watches, by metric.
        self.best: Mapping[str, Best] = {}
        #: Of the parts that batches are taken in, since memory ran out; 0: they are whole.
        self.micro_batch_rows = 0
        #: Whether ``on_epoch_end`` was called for the current epoch.
        self.epoch_has_ended = False

    def advance(self) -> int:
        """Count a finished step.

        :return: Finished steps.
        """
        state = self.state
        step = state.step + 1
        _set_step(state, step)
        _set_batch_in_epoch(state, state.batch_in_epoch + 1)
        _set_samples_seen(state, state.samples_seen + self._rows_per_step)
        return step

    @property
    def cursor(self) -> Cursor:
        """Position of the run in its data."""
        return Cursor(epoch=self.state.epoch, rows=self.state.batch_in_epoch * self._rows_per_step)

    @contextmanager
    def reading(self, stream: Stream) -> Iterator[None]:
        """Count the rows of a stream of the current epoch into the digest, as far as they have been trained on."""
        self._stream = stream
        try:
            yield
        finally:
            stream.close()
            self._digest, self._stream = self._digest_now(), None

    def _digest_now(self) -> int:
        read = self._stream.digest(self.cursor.rows) if self._stream else 0
        return (self._digest + read) % 2**64

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Behind it, the run stands where it stood before: steps that were made inside do not count."""
        names = "step", "epoch", "batch_in_epoch", "samples_seen"
        place, had_ended, digest = [getattr(self.state, name) for name in names], self.epoch_has_ended, self._digest
        try:
            yield
        finally:
            for name, value in zip(names, place, strict=True):
                _set(self.state, name, value)
            self.epoch_has_ended, self._digest = had_ended, digest

    def next_epoch(self) -> None:
        """Move to the first batch of the next epoch."""
        _set(self.state, "epoch", self.state.epoch + 1)
        _set(self.state, "batch_in_epoch", 0)
        self.epoch_has_ended = False

    def remember(self, metrics: Mapping[str, float]) -> None:
        """Make metrics the last ones of their names, and add them to the history."""
        self.settle()
        self._remember(metrics, self.state.step)

    def _remember(self, metrics: Mapping[str, float], step: int) -> None:
        _set(self.state, "metrics", {**_METRICS(self.state), **metrics})
        remember(self._history, metrics, step)

    def metrics_at(self, step: int) -> dict[str, float]:
        """The metrics of an earlier step: of each the value recorded last up to it."""
        self.settle()
        return {
            name: next(point.value for point in reversed(points) if point.step <= step)
            for name, points in self._history.items()
            if points[0].step <= step
        }

    def expect(self, metrics: "Future[dict[str, float]]") -> None:
        """Remember metrics of the present step as soon as they are there, or asked for."""
        self.settle()
        self._late = (self.state.step, metrics)

    def settle(self) -> None:
        """Wait for what is on its way.

        :raises RuntimeError: When the other ranks are gone, or whatever else has kept it from coming.
        """
        if self._late is None:
            return
        with self._settling:  # a thread of a plugin's may ask, too
            late = self._late
            if late is None:
                return
            try:
                self._remember(late[1].result(), late[0])
            finally:
                self._late = None  # only now: until then, others have to wait

    def give_up(self) -> None:
        """Wait no more for what is on its way, but for a moment, and not for its errors: the run has one already."""
        late, self._late = self._late, None
        if late is not None and wait([late[1]], _LAST_SECONDS).done and late[1].exception() is None:
            self._remember(late[1].result(), late[0])

    def note_stop(self, reason: str, requested_by: str) -> None:
        """Add a request to stop."""
        request = StopRequest(reason=reason, requested_by=requested_by)
        _set(self.state, "stop_requests", (*self.state.stop_requests, request))

    def note_best(self, best: Best) -> None:
        """Make a value the best of its metric."""
        self.best = {**self.best, best.metric: best}
        _set(self.state, "best", best)

    def note_checkpoints(self, checkpoints: tuple[Checkpoint, ...]) -> None:
        """Set the checkpoints that exist."""
        _set(self.state, "checkpoints", checkpoints)

    def stored(self) -> dict[str, Any]:
        """Return the tree that a checkpoint keeps."""
        self.settle()
        state = self.state
        return {
            "step": state.step,
            "epoch": state.epoch,
            "batch_in_epoch": state.batch_in_epoch,
            "samples_seen": state.samples_seen,
            "metrics": dict(state.metrics),
            "best": [attrs.asdict(one) for one in self._best_last()],
            "history": {name: _stored(points) for name, points in self._history.items()},
            "micro_batch_rows": self.micro_batch_rows,
            "epoch_has_ended": self.epoch_has_ended,
        }

    def _best_last(self) -> list[Best]:
        """The best of each metric; that of the run state comes last."""
        return sorted(self.best.values(), key=lambda one: one is self.state.best)

    def stored_cursor(self) -> dict[str, int]:
        """Return the position in the data that a checkpoint keeps; plain JSON."""
        return {"epoch": self.cursor.epoch, "rows": self.cursor.rows, "digest": self._digest_now()}

    def load(self, stored: Mapping[str, Any], *, digest: int) -> None:
        """Bring back what :meth:`stored` gave.

        :param digest: Of all rows that the run has been trained on.
        """
        self._digest = digest
        for name in ("step", "epoch", "batch_in_epoch", "samples_seen", "metrics"):
            _set(self.state, name, stored[name])
        self.micro_batch_rows = stored.get("micro_batch_rows", 0)  # older checkpoints have none
        self.epoch_has_ended = stored.get("epoch_has_ended", False)
        for best in stored["best"]:
            self.note_best(Best(**best))
        for name, points in stored["history"].items():
            for step, value in zip(points["steps"].tolist(), points["values"].tolist(), strict=True):
                remember(self._history, {name: value}, step)


def _stored(points: Sequence[MetricPoint]) -> dict[str, Any]:
    """Points as two arrays: ten thousand take a millisecond to copy; a list of them, a tenth of a second."""
    return {
        "steps": np.fromiter((point.step for point in points), np.int64, len(points)),
        "values": np.fromiter((point.value for point in points), np.float64, len(points)),
    }
