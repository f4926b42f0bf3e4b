"""A job of a service, followed from its submission to its end."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from hostcore.cli.follow import EventScreen, WatchedRun
from hostcore.cli.output import echo
from hostcore.job.spec import JobSpec
from hostcore.runs.result import RunResult
from hostcore.supervisor.interrupts import Interrupts
from hostcore_service.client.answers import Unavailable
from hostcore_service.client.jobs import RemoteJob, RemoteJobs, path_of
from hostcore_service.client.run import ServiceRun
from hostcore_service.client.subscription import END, Message, subscribe
from hostcore_service.client.timeouts import asked_until_answered

#: Between two checks for signals.
_TICK_SECONDS: Final = 0.1
#: A job without events for so long is asked for the reason.
_SILENT_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.5
#: The most events that wait to be shown.
_QUEUED_EVENTS: Final = 10_000


class SubmittedJob(ServiceRun, WatchedRun):
    """A job that the service has just taken. Its events are read in a thread, so that this one is free for signals.

    :param spec: Decides what a terminal shows of it.
    :param after_attempt: The newest attempt before, whose events are not shown again; None for a new job.
    :param finished: Its result if it had finished before.
    """

    def __init__(
        self,
        jobs: RemoteJobs,
        job: RemoteJob,
        spec: JobSpec,
        *,
        after_attempt: int | None = None,
        finished: RunResult | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(jobs, job)
        self.finished = finished
        self._spec = spec
        self._after_attempt = after_attempt
        self._clock = clock
        self._received: queue.Queue[Message | BaseException] = queue.Queue(_QUEUED_EVENTS)
        #: Begin of the silence before the first event; None after it.
        self._silent_since: float | None = clock()
        self._detail = ""

    def submission(self) -> Mapping[str, Any]:
        """Return the facts of a local submission, and the service."""
        known = {"run_id": self.run_id, "status": "submitted", "directory": None, "launch": None}
        return {**known, "server": self._jobs.client.url}

    def follow(self, interrupts: Interrupts) -> RunResult:
        """Show it on this terminal until it ends."""
        if self._after_attempt is None:
            self._jobs.client.tell(f"{self.run_id}  submitted to {self._jobs.client.url}")
        return super().follow(interrupts)

    def screen(self) -> EventScreen:
        """Return the display of its events."""
        return EventScreen(self._spec, run_id=self.run_id, after_attempt=self._after_attempt or 0)

    def lines(self, meanwhile: Callable[[], None]) -> Iterator[bytes]:
        """Iterate over its events.

        :raises HostcoreError: When the service is unreachable for too long.
        """
        threading.Thread(target=self._receive, name="events", daemon=True).start()
        while (message := self._next()) is None or message.event != END:
            meanwhile()
            if message is None:
                self._report_silence()
            else:
                self._silent_since = None
                yield message.data.encode()
        look = partial(self._jobs.get, self.run_id, once=True)
        while not (job := asked_until_answered(self._jobs.client, look, meanwhile=meanwhile)).is_over:
            meanwhile()
            self._jobs.client.sleep(_LOOK_SECONDS)  # it was resumed just now
        self._job = job

    def stop(self, reason: str) -> None:
        """Have the service cancel it."""
        self._jobs.cancel(self.run_id, reason, once=True)

    def result(self) -> RunResult:
        """Return its result, or the facts that the service knows."""
        return self._jobs.result(self._job)

    def _receive(self) -> None:
        try:
            for message in subscribe(self._jobs.client, f"{path_of(self.run_id)}/events"):
                self._received.put(message)
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._received.put(error)

    def _next(self) -> Message | None:
        try:
            received = self._received.get(timeout=_TICK_SECONDS)
        except queue.Empty:
            return None
        if isinstance(received, BaseException):
            raise received
        return received

    def _report_silence(self) -> None:
        """Print the engine's message about a job that waits for it, when it changes."""
        now = self._clock()
        if self._silent_since is None or now - self._silent_since < _SILENT_SECONDS:
            return
        self._silent_since = now
        try:
            job = self._jobs.get(self.run_id, once=True)
        except Unavailable:
            return  # the other thread waits until it is back
        if job.status == "submitted" and job.detail not in ("", self._detail):
            self._detail = job.detail
            echo(f"{self.run_id}  {job.status}: {job.detail}", err=True)
