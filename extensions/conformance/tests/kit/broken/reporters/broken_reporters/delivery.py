"""Broken in what arrives."""

import json
import uuid
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from reference_plugins.reporter import ReferenceReporter

from hostcore_hookspecs import Event, ReporterContext


class Buffers(ReferenceReporter):
    """Sends what it holds when it is full."""

    size = 16

    def __init__(self, *, settings: ReferenceReporter.Settings) -> None:
        super().__init__(settings=settings)
        self._events: list[Event] = []

    def report_event(self, event: Event) -> None:
        self._events.append(event)
        if len(self._events) >= self.size:
            self.flush()

    def flush(self) -> None:
        while self._events:
            super().report_event(self._events.pop(0))


class SendsBackwards(Buffers):
    def flush(self) -> None:
        self._events.reverse()
        super().flush()

    def close(self) -> None:
        self.flush()
        super().close()


class FlushesInClose(Buffers):
    def close(self) -> None:
        self.flush()
        super().close()


class MixesStepAndEpoch(ReferenceReporter):
    def post(self, body: bytes, *, key: str) -> None:
        event = json.loads(body)
        event["step"] = event["epoch"]
        super().post(json.dumps(event).encode(), key=key)


class KeepsOldMetrics(ReferenceReporter):
    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        self._metrics: dict[str, Any] = {}

    def post(self, body: bytes, *, key: str) -> None:
        event = json.loads(body)
        self._metrics.update(event.get("metrics", {}))
        if "metrics" in event:
            event["metrics"] = self._metrics
        super().post(json.dumps(event).encode(), key=key)


class RefusesRepetition(ReferenceReporter):
    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        self._seen: set[int] = set()

    def report_event(self, event: Event) -> None:
        assert event.seq not in self._seen, f"{event.seq} comes again"
        self._seen.add(event.seq)
        super().report_event(event)


class SkipsAfterRepetition(ReferenceReporter):
    """Counts events instead of looking at their numbers."""

    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        self._to_skip = ctx.last_seq

    def report_event(self, event: Event) -> None:
        if self._to_skip:
            self._to_skip -= 1
        else:
            super().report_event(event)


class ForgetsWhatItSent(ReferenceReporter):
    def post(self, body: bytes, *, key: str) -> None:
        super().post(body, key=uuid.uuid4().hex)


class BeginsAnew(ReferenceReporter):
    """Removes what the server has of the run."""

    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        connection = HTTPConnection(urlsplit(self._settings.url).netloc, timeout=5)
        connection.request("DELETE", f"/events/{ctx.run_id}")
        connection.getresponse().close()
        connection.close()


class HasOneRun(ReferenceReporter):
    """Its class knows which run it is."""

    run_id = ""

    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        type(self).run_id = ctx.run_id

    def post(self, body: bytes, *, key: str) -> None:
        event = {**json.loads(body), "run_id": self.run_id}
        super().post(json.dumps(event).encode(), key=f"{self.run_id}:{key.rpartition(':')[2]}")
