"""Broken in what they take."""

import struct

import attrs
from reference_plugins.reporter import ReferenceReporter

from hostcore_hookspecs import Event, FatalError
from hostcore_hookspecs.events import CheckpointSaved, Metrics, Progress, RunSucceeded, Warning

HANDLERS = {
    "run_submitted": "begins", "run_started": "begins", "run_resumed": "begins", "metrics": "curve",
    "run_succeeded": "ends", "run_failed": "ends", "run_cancelled": "ends", "run_preempted": "ends",
}  # fmt: skip


class KnowsSomeEvents(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        _ = HANDLERS[event.name]
        super().report_event(event)


class WantsAReason(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        if isinstance(event.payload, RunSucceeded):
            _ = event.payload.reason.upper()  # type: ignore[union-attr]
        super().report_event(event)


class FormatsNone(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        if isinstance(event.payload, Progress):
            _ = f"{event.payload.samples_per_second:.1f} samples/s"
        super().report_event(event)


class WantsABest(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        if isinstance(event.payload, CheckpointSaved):
            _ = min(event.payload.best.values())
        super().report_event(event)


class AddsUpMetrics(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        if isinstance(event.payload, Metrics):
            _ = [float(value) for value in event.payload.metrics.values()]  # type: ignore[arg-type]
        super().report_event(event)


class CountsIn32Bits(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        struct.pack("<i", event.step or 0)
        super().report_event(event)


class WantsAStep(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        if isinstance(event.payload, Warning):
            _ = 100 * event.step  # type: ignore[operator]
        super().report_event(event)


class WritesAscii(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        repr(event.payload).encode("ascii")
        super().report_event(event)


class HasALimit(ReferenceReporter):
    def post(self, body: bytes, *, key: str) -> None:
        if len(body) > 1 << 13:
            raise FatalError("413 Content Too Large")
        super().post(body, key=key)


class KnowsAllEvents(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        if event.name == "gpu_throttled":
            raise KeyError(event.name)
        super().report_event(event)


@attrs.frozen(kw_only=True)
class Row:
    """All that metrics have."""

    metrics: object
    nonfinite: object
    samples_per_second: float | None
    step_seconds: float | None
    data_wait_seconds: float | None
    debug: object


class KnowsAllFields(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        if event.name == "metrics":
            Row(**attrs.asdict(event.payload))
        super().report_event(event)
