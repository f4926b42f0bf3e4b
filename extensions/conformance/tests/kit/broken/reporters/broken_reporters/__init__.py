"""Reporters that are the reference reporter with one thing broken."""

import asyncio
import contextlib
import json
import queue
import signal
import sqlite3
import struct
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import attrs
from reference_plugins.breaking import Change, before, broken, given, then
from reference_plugins.reporter import ReferenceReporter

from hostcore_hookspecs import Event, FatalError, ReporterContext, TransientError
from hostcore_hookspecs.events import CheckpointSaved, Metrics, Progress, RunSucceeded, Warning

HANDLERS = {
    "run_submitted": "begins", "run_started": "begins", "run_resumed": "begins", "metrics": "curve",
    "run_succeeded": "ends", "run_failed": "ends", "run_cancelled": "ends", "run_preempted": "ends",
}  # fmt: skip


@attrs.frozen(kw_only=True)
class Row:
    """All that metrics have."""

    metrics: object
    nonfinite: object
    samples_per_second: float | None
    step_seconds: float | None
    data_wait_seconds: float | None
    debug: object


def _of(kind: type, look: Callable[[Event], object]) -> Change:
    """Do something with each event of a kind, before it is sent."""
    return before("report_event", lambda event: look(event) if isinstance(event.payload, kind) else None)


def _sent(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """Send something else."""
    return given("post", body=lambda body: json.dumps(change(json.loads(body))).encode())


broken(
    globals(),
    ReferenceReporter,
    # --- what they take
    KnowsSomeEvents=before("report_event", lambda event: HANDLERS[event.name]),
    WantsAReason=_of(RunSucceeded, lambda event: event.payload.reason.upper()),
    FormatsNone=_of(Progress, lambda event: f"{event.payload.samples_per_second:.1f} samples/s"),
    WantsABest=_of(CheckpointSaved, lambda event: min(event.payload.best.values())),
    AddsUpMetrics=_of(Metrics, lambda event: sum(map(float, event.payload.metrics.values()))),
    CountsIn32Bits=before("report_event", lambda event: struct.pack("<i", event.step or 0)),
    WantsAStep=_of(Warning, lambda event: 100 * event.step),
    WritesAscii=before("report_event", lambda event: repr(event.payload).encode("ascii")),
    KnowsAllFields=before("report_event", lambda event: event.name == "metrics" and Row(**attrs.asdict(event.payload))),
    # --- what arrives
    MixesStepAndEpoch=_sent(lambda event: {**event, "step": event["epoch"]}),
    ForgetsWhatItSent=given("post", key=lambda: uuid.uuid4().hex),
    SendsItsToken=given(
        "post",
        body=lambda self, body: json.dumps({**json.loads(body), "settings": {"token": _token(self)}}).encode(),
    ),
    # --- how they open, close and end
    SetsSignalHandler=then("open", lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN)),
    WantsEventLoop=then("open", asyncio.get_event_loop),
    # Has a thread that nobody stops; the kit kills its process.
    KeepsTheProcess=then("open", lambda: threading.Thread(target=time.sleep, args=(60,), daemon=False).start()),
)


def _token(reporter: ReferenceReporter) -> str | None:
    token = reporter._settings.token
    return token.value if token else None


class KnowsAllEvents(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        if event.name == "gpu_throttled":
            raise KeyError(event.name)
        super().report_event(event)


class HasALimit(ReferenceReporter):
    def post(self, body: bytes, *, key: str) -> None:
        if len(body) > 1 << 13:
            raise FatalError("413 Content Too Large")
        super().post(body, key=key)


# --- what arrives -----------------------------------------------------------------------------------------------------


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


class FlushesInClose(Buffers):
    def close(self) -> None:
        self.flush()
        super().close()


class SendsBackwards(FlushesInClose):
    def flush(self) -> None:
        self._events.reverse()
        super().flush()


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


# --- what they do while the sink is not well --------------------------------------------------------------------------


class Swallows(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        with contextlib.suppress(Exception):
            super().report_event(event)


class _AfterAnOutage(ReferenceReporter):
    """Does something with an error that passes."""

    def report_event(self, event: Event) -> None:
        try:
            super().report_event(event)
        except TransientError as error:
            self.failed(error)

    def failed(self, error: TransientError) -> None:
        raise NotImplementedError


class GivesUp(_AfterAnOutage):
    def failed(self, error: TransientError) -> None:
        raise FatalError(error.message) from error


class StaysBroken(_AfterAnOutage):
    _is_broken = False

    def report_event(self, event: Event) -> None:
        if self._is_broken:
            raise ConnectionError("not connected")
        super().report_event(event)

    def failed(self, error: TransientError) -> None:
        self._is_broken = True
        raise error


class DropsWhatTookTooLong(_AfterAnOutage):
    def failed(self, error: TransientError) -> None:
        if "timed out" not in error.message:
            raise error


class ShowsItsToken(_AfterAnOutage):
    def failed(self, error: TransientError) -> None:
        raise TransientError(f"the request with {_token(self) or 'no token'} failed") from error


class GreetsTheServer(ReferenceReporter):
    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        status = self.answer_to(json.dumps({"seq": 0, "run_id": ctx.run_id}).encode(), key=f"{ctx.run_id}:hello")
        if status != 204:
            raise FatalError(f"the server answers {status}")


class Waits(ReferenceReporter):
    """Has no timeout."""

    def __init__(self, *, settings: ReferenceReporter.Settings) -> None:
        super().__init__(settings=attrs.evolve(settings, timeout_seconds=60))


# --- how they open, close and end -------------------------------------------------------------------------------------


class ConnectsInConstructor(ReferenceReporter):
    def __init__(self, *, settings: ReferenceReporter.Settings) -> None:
        super().__init__(settings=settings)
        self._database = sqlite3.connect(":memory:")

    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        self._database.execute("CREATE TABLE events (seq INTEGER)")


class SummarizesInClose(ReferenceReporter):
    _last: Event

    def report_event(self, event: Event) -> None:
        super().report_event(event)
        self._last = event

    def close(self) -> None:
        _ = f"the last event was {self._last.name}"
        super().close()


class ClosesOnce(ReferenceReporter):
    _file: Any = None

    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        self._file = threading.Lock()
        self._file.acquire()

    def close(self) -> None:
        if self._file is not None:
            self._file.release()
        super().close()


class ClosesWhatWasOpened(ReferenceReporter):
    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        self._pool = ThreadPoolExecutor(1)

    def close(self) -> None:
        self._pool.shutdown()
        super().close()


class OpensOnce(ReferenceReporter):
    def __init__(self, *, settings: ReferenceReporter.Settings) -> None:
        super().__init__(settings=settings)
        self._pool = ThreadPoolExecutor(1)

    def report_event(self, event: Event) -> None:
        self._pool.submit(super().report_event, event).result()

    def close(self) -> None:
        self._pool.shutdown()
        super().close()


class CountsFromOne(ReferenceReporter):
    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        self._last = ctx.last_seq

    def report_event(self, event: Event) -> None:
        assert event.seq <= self._last + 1
        super().report_event(event)
        self._last = event.seq


class NeedsTheBeginning(ReferenceReporter):
    def report_event(self, event: Event) -> None:
        if event.name == "run_submitted":
            self._total = event.payload.max_steps
        _ = (event.step or 0) / self._total
        super().report_event(event)


class LeavesItToADaemon(ReferenceReporter):
    """Sends in a thread that nobody waits for."""

    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._closed = threading.Event()
        threading.Thread(target=self._send, daemon=True).start()

    def _send(self) -> None:
        self._closed.wait()
        time.sleep(0.2)  # by then a process that ends at once has ended, and one that lingers for a second has not
        while True:
            super().report_event(self._events.get())

    def report_event(self, event: Event) -> None:
        self._events.put(event)

    def close(self) -> None:
        self._closed.set()
        super().close()
