"""A job of a service, from its submission to its end."""

import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from hostcore.cli.output import echo
from hostcore.cli.watching import WatchSignals
from hostcore.supervisor.interrupts import Interrupts
from hostcore_service.client.answers import Unavailable
from hostcore_service.client.client import words_for
from hostcore_service.client.jobs import RemoteJob, RemoteJobs, path_of
from hostcore_service.client.subscription import END, Message, subscribe
from hostcore_service.client.timeouts import asked_until_answered

#: Signals are handled so often.
_TICK_SECONDS: Final = 0.1
#: A job that has told nothing for so long is asked why.
_SILENT_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.5
#: Events that may wait to be shown.
_QUEUED_EVENTS: Final = 10_000


class Watch:
    """Follows one job. Its events are read in a thread, so that this one is free for signals."""

    def __init__(
        self, jobs: RemoteJobs, run_id: str, interrupts: Interrupts, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._jobs = jobs
        self._run_id = run_id
        self._signals = WatchSignals(
            run_id,
            interrupts,
            cancel=lambda reason: jobs.cancel(run_id, reason, once=True),
            retry_on=Unavailable,
            watch=["hostcore", "logs", "-f", run_id, *words_for(jobs.client.url)],
        )
        self._clock = clock
        self._received: queue.Queue[Message | BaseException] = queue.Queue(_QUEUED_EVENTS)
        #: Since when no event has come; None once one has.
        self._silent_since: float | None = clock()
        self._detail = ""

    def to_the_end(self, show: Callable[[bytes], None]) -> RemoteJob:
        """Follow the job until it is over.

        :param show: Called with the line of every event.
        :raises SystemExit: When a second Ctrl-C or another signal ends the watching.
        :raises HostcoreError: When the service is gone for too long.
        """
        threading.Thread(target=self._listen, name="events", daemon=True).start()
        while (message := self._next()) is None or message.event != END:
            self._signals.handle()
            if message is None:
                self._ask_why()
            else:
                self._silent_since = None
                show(message.data.encode())
        return self._ended()

    def _ended(self) -> RemoteJob:
        """The job that is over."""
        ask = partial(self._jobs.get, self._run_id, once=True)
        while not (job := asked_until_answered(self._jobs.client, ask, meanwhile=self._signals.handle)).is_over:
            self._signals.handle()
            self._jobs.client.sleep(_LOOK_SECONDS)  # it was resumed just now
        return job

    def _listen(self) -> None:
        try:
            for message in subscribe(self._jobs.client, f"{path_of(self._run_id)}/events"):
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

    def _ask_why(self) -> None:
        """Nothing was received of the job yet: while it waits for its engine, that has something to say."""
        now = self._clock()
        if self._silent_since is None or now - self._silent_since < _SILENT_SECONDS:
            return
        self._silent_since = now
        try:
            job = self._jobs.get(self._run_id, once=True)
        except Unavailable:
            return  # the other thread waits for it to come back
        if job.status == "submitted" and job.detail not in ("", self._detail):
            self._detail = job.detail
            echo(f"{self._run_id}  {job.status}: {job.detail}", err=True)
