"""Bodies of a webhook's requests, in one of several formats."""

import math
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import orjson

from hostcore_builtin_plugins.progress import RunProgress
from hostcore_hookspecs import Event
from hostcore_hookspecs.events import (
    ENDS,
    CheckpointSaved,
    Metrics,
    Progress,
    RunCancelled,
    RunFailed,
    RunPreempted,
    RunSubmitted,
    RunSucceeded,
    Test,
    Validation,
)
from hostcore_trackers.event_json import dump, event_json
from hostcore_trackers.names import distinct
from hostcore_trackers.scalars import scalars_of

#: What Kubeflow's definition of a TrainJob allows.
_KUBEFLOW_METRICS: Final = 256
_KUBEFLOW_TEXT: Final = 64
_KUBEFLOW_SECONDS: Final = 2**31 - 1


class Format(Protocol):
    """Format of the requests for a run's events; sees all of them, in order."""

    def body(self, event: Event) -> bytes | None:
        """The JSON to post for an event; None for none. Asked again for the same event if posting it failed."""


class EventFormat:
    """Every event as it is in ``events.jsonl``."""

    def body(self, event: Event) -> bytes | None:
        """The event."""
        return event_json(event)


class KubeflowFormat:
    """The status of a TrainJob, as Kubeflow Trainer's status server takes it (KEP-2779).

    Each body replaces the one before, so that events of the training need not all be posted.

    :param every_seconds: Of metrics and progress, post at most one in so many seconds of the run.
    """

    def __init__(self, every_seconds: float) -> None:
        self._every_ms = every_seconds * 1000
        self._progress = RunProgress()
        self._epochs: int | None = None
        self._epoch: int | None = None
        self._metrics: dict[str, float] = {}
        self._seen = 0
        self._posted_ms: int | None = None
        self._due = False

    def body(self, event: Event) -> bytes | None:
        """The status after an event, if it is time for one."""
        if event.seq > self._seen:
            self._seen = event.seq
            self._due = self._take(event)
        return dump({"trainerStatus": self._status(event)}) if self._due else None

    def _take(self, event: Event) -> bool:
        """Note what an event changes.

        :return: Whether to post the status.
        """
        self._progress.update(event)
        self._epoch = event.epoch if event.epoch is not None else self._epoch
        self._metrics.update(scalars_of(event))
        if isinstance(event.payload, RunSubmitted):
            self._epochs = event.payload.epochs
        elif isinstance(event.payload, Metrics | Progress):
            if self._posted_ms is not None and event.time_ms - self._posted_ms < self._every_ms:
                return False
        elif not isinstance(event.payload, Validation | Test) and event.name not in ENDS:
            return False
        self._posted_ms = event.time_ms
        return True

    def _status(self, event: Event) -> dict[str, Any]:
        fraction, eta = self._progress.fraction, self._progress.eta_seconds
        if isinstance(event.payload, RunSucceeded):
            fraction, eta = 1.0, 0.0
        status: dict[str, Any] = {
            "metrics": self._named_values(),
            "lastUpdatedTime": datetime.fromtimestamp(event.time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        if fraction is not None:
            status["progressPercentage"] = math.floor(fraction * 100)
        if eta is not None:
            status["estimatedRemainingSeconds"] = min(round(eta), _KUBEFLOW_SECONDS)
        return status

    def _named_values(self) -> list[dict[str, str]]:
        counts = {
            "currentStep": self._progress.step,
            "totalSteps": self._progress.total or None,
            "currentEpoch": None if self._epoch is None else self._epoch + 1,  # of so many
            "totalEpochs": self._epochs,
        }
        values = {name: str(count) for name, count in counts.items() if count is not None}
        named = {
            distinct(name, name, characters=_KUBEFLOW_TEXT, reserved=counts): repr(value)
            for name, value in self._metrics.items()
            if name
        }
        values.update(named)
        return [{"name": name, "value": value} for name, value in list(values.items())[:_KUBEFLOW_METRICS]]


class OrchestratorFormat:
    """The calls of a training orchestrator: one with ``kind`` ``metrics`` for each, and one ``terminal`` at the end."""

    def __init__(self) -> None:
        self._final_checkpoint: str | None = None

    def body(self, event: Event) -> bytes | None:
        """A ``metrics`` or ``terminal`` call; None for all other events."""
        match event.payload:
            case CheckpointSaved(path=path, final=True):
                self._final_checkpoint = path
            case RunSubmitted():
                self._final_checkpoint = None
            case Metrics(metrics=metrics) | Validation(metrics=metrics) | Test(metrics=metrics):
                return _call(event, kind="metrics", metrics=dict(metrics))
            case RunSucceeded():
                return self._terminal(event, status="completed", error="")
            case RunFailed(error=error):
                return self._terminal(event, status="failed", error=f"{error.type}: {error.message}")
            case RunCancelled():
                return self._terminal(event, status="failed", error="canceled")
            case RunPreempted():
                return self._terminal(event, status="failed", error="preempted")
        return None

    def _terminal(self, event: Event, *, status: str, error: str) -> bytes:
        return _call(
            event,
            kind="terminal",
            status=status,
            error=error,
            final_checkpoint=self._final_checkpoint,
            # Its place in a store is known to the uploader.
            final_checkpoint_ref=None,
            final_checkpoint_sha256=None,
        )


def _call(event: Event, **fields: Any) -> bytes:
    call = {"run_id": event.run_id, "step": event.step or 0, **fields}
    return dump(call, option=orjson.OPT_SORT_KEYS)
