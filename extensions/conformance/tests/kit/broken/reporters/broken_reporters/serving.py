"""Broken in how they open, close and end."""

import asyncio
import queue
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from reference_plugins.reporter import ReferenceReporter

from hostcore_hookspecs import Event, ReporterContext


class SetsSignalHandler(ReferenceReporter):
    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)


class WantsEventLoop(ReferenceReporter):
    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        asyncio.get_event_loop()


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


class KeepsTheProcess(ReferenceReporter):
    """Has a thread that nobody stops; the kit kills its process."""

    def open(self, ctx: ReporterContext) -> None:
        super().open(ctx)
        threading.Thread(target=time.sleep, args=(60,), daemon=False).start()


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
