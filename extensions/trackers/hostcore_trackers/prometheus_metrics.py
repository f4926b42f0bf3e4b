"""The numbers of a run as Prometheus has them, in a registry of their own."""

import math
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Info

from hostcore_hookspecs import Event, ReporterContext
from hostcore_hookspecs.events import (
    CheckpointSaved,
    Metrics,
    Progress,
    RunStarted,
    RunSubmitted,
    Test,
    TrainerRestored,
    Validation,
    Warning,
)

_STATES: Final = ("submitted", "running", "succeeded", "failed", "cancelled", "preempted")


class RunMetrics:
    """All that is exported of one run, each with the label ``run_id``. Safe to read while it is updated."""

    def __init__(self, ctx: ReporterContext) -> None:
        self.registry = CollectorRegistry()
        self._run_id = ctx.run_id
        self._last_seq = 0
        self._metric = self._gauge("metric", "The last value of each metric", "metric")
        self._step = self._gauge("step", "Finished steps")
        self._total = self._gauge("total_steps", "Steps that the run will have when it ends, if that is known")
        self._epoch = self._gauge("epoch", "The epoch, from 0")
        self._rate = self._gauge("samples_per_second", "Rows per second, over all ranks")
        self._step_seconds = self._gauge("step_seconds", "Mean wall time of a step, waiting for data included")
        self._data_wait = self._gauge("data_wait_seconds", "Mean time per step spent waiting for data")
        self._last_event = self._gauge("last_event_timestamp_seconds", "When the last event happened")
        self._checkpoint = self._gauge("last_checkpoint_step", "The step of the newest checkpoint")
        self._events = self._counter("events", "Events since this process began", "event")
        self._warnings = self._counter("warnings", "Warnings since this process began", "code")
        self._checkpoints = self._counter("checkpoints", "Checkpoints since this process began")
        self._checkpoint_bytes = self._counter("checkpoint_bytes", "The size of these checkpoints")
        self._status = Enum(
            "hostcore_status", "The state of the run", ["run_id"], states=list(_STATES), registry=self.registry
        )
        info = Info("hostcore_run", "What runs", ["run_id"], registry=self.registry)
        info.labels(ctx.run_id).info({"trainer": ctx.job.trainer, "attempt": str(ctx.attempt)})
        self._status.labels(ctx.run_id).state("submitted")

    def update(self, event: Event) -> None:
        """Take in an event; one that comes again counts once."""
        if event.seq <= self._last_seq:
            return
        self._last_seq = event.seq
        run_id = self._run_id
        self._events.labels(run_id, event.name).inc()
        self._last_event.labels(run_id).set(event.time_ms / 1000)
        _set(self._step.labels(run_id), event.step)
        _set(self._epoch.labels(run_id), event.epoch)
        match event.payload:
            case RunSubmitted(total_steps=total, max_steps=most):
                _set(self._total.labels(run_id), total or most or None)
            case RunStarted():
                self._status.labels(run_id).state("running")
            case Metrics() as payload:
                self._take(payload.metrics)
                _set(self._step_seconds.labels(run_id), payload.step_seconds)
                _set(self._data_wait.labels(run_id), payload.data_wait_seconds)
                _set(self._rate.labels(run_id), payload.samples_per_second)
            case Validation(metrics=metrics) | Test(metrics=metrics) | TrainerRestored(values=metrics):
                self._take(metrics)
            case Progress(samples_per_second=rate):
                _set(self._rate.labels(run_id), rate)
            case CheckpointSaved(bytes=size):
                self._checkpoints.labels(run_id).inc()
                self._checkpoint_bytes.labels(run_id).inc(size)
                _set(self._checkpoint.labels(run_id), event.step)
            case Warning(code=code):
                self._warnings.labels(run_id, code).inc()
            case _ if event.name.removeprefix("run_") in _STATES:
                self._status.labels(run_id).state(event.name.removeprefix("run_"))

    def _take(self, metrics: Mapping[str, float | None]) -> None:
        for name, value in metrics.items():
            self._metric.labels(self._run_id, name).set(math.nan if value is None else value)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"hostcore_{name}", f"{text}.", ["run_id", *labels], registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"hostcore_{name}", f"{text}.", ["run_id", *labels], registry=self.registry)


def _set(gauge: Gauge, value: float | None) -> None:
    if value is not None:
        gauge.set(value)
