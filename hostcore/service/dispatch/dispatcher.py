"""The thread that attends to jobs. Several services may share a database: a job has one attendant at a time."""

import logging
import os
import secrets
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from hostcore.events.writer import now_ms
from hostcore.plugins.discover import Discovered
from hostcore.service.dispatch.launching import Changes, detail_of, ended, is_transient, launch
from hostcore.service.dispatch.watching import look
from hostcore.service.settings import Settings
from hostcore.service.store.job import StoredJob
from hostcore.service.store.jobs import LEASE_MS, Jobs
from hostcore_hookspecs.errors import HostcoreError

LOG: Final = logging.getLogger("hostcore.service")

#: Between two looks for jobs that are due.
_TICK_SECONDS: Final = 0.25
#: A launcher that does not answer is asked again after so long at the most.
_MOST_PATIENCE_MS: Final = 60_000
#: A job that has run for so long is looked at less often.
_YOUNG_MS: Final = 60_000
_SELDOM: Final = 5


class Dispatcher:
    """Launches what was recorded, watches it, cancels what somebody wants to end.

    A job goes from ``queued`` over ``launching``, which is written down before its launcher is called, to ``launched``
    with the launcher's handle, and to ``ended``. Whoever finds one ``launching`` calls its launcher again with the same
    launch id, for which nothing is started twice.
    """

    def __init__(self, jobs: Jobs, settings: Settings, discovered: Discovered) -> None:
        self._jobs = jobs
        self._settings = settings
        self._discovered = discovered
        self.name = f"{socket.gethostname()[:32]}.{os.getpid()}.{secrets.token_hex(4)}"
        self._awake = threading.Event()
        self._stopping = threading.Event()
        self._room = settings.operator.service.launches_at_once
        self._busy = threading.Semaphore(self._room)
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what was begun, and end."""
        self._stopping.set()
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self) -> None:
        """Look for jobs now."""
        self._awake.set()

    def _run(self) -> None:
        with ThreadPoolExecutor(self._room, thread_name_prefix="attendant") as attendants:
            while not self._stopping.is_set():
                self._awake.clear()
                if not self._look_for_work(attendants):
                    self._awake.wait(_TICK_SECONDS)

    def _look_for_work(self, attendants: ThreadPoolExecutor) -> bool:
        """Hand jobs to attendants; whether there may be more."""
        free = 0
        while free < self._room and self._busy.acquire(blocking=False):
            free += 1
        claimed: list[StoredJob] = []
        try:
            claimed = self._jobs.claim(self.name, now=now_ms(), limit=free) if free else []
        except SQLAlchemyError as error:
            LOG.warning("the database does not answer: %s", str(error).partition("\n")[0])
        for job in claimed:
            attendants.submit(self._attend_and_leave, job)
        for _ in range(free - len(claimed)):
            self._busy.release()
        return bool(claimed) and len(claimed) == free

    def _attend_and_leave(self, job: StoredJob) -> None:
        try:
            self._attend(job)
        except Exception:
            LOG.exception("attending to %s failed; it is looked at again in %s s", job.run_id, LEASE_MS // 1000)
        finally:
            self._busy.release()

    def _attend(self, job: StoredJob) -> None:
        if job.phase == "queued":
            if job.cancel_ms is not None:
                self._release(job, ended("cancelled", job.cancel_reason or "cancelled before it was launched"))
                return
            if not self._jobs.write(job, {"phase": "launching"}, now=now_ms()):
                return  # somebody else attends to it now
        try:
            changes = (
                look(job, self._settings, self._discovered) if job.phase == "launched" else launch(job, self._settings)
            )
        except HostcoreError as error:
            changes = self._after(error, job)
        self._release(job, changes)

    def _after(self, error: HostcoreError, job: StoredJob) -> Changes:
        """What is known of a job whose launcher has failed: it is asked again, unless it never took the job."""
        LOG.warning("%s: %s", job.run_id, detail_of(error))
        if job.phase != "launched" and not is_transient(error):
            return ended("failed", detail_of(error))
        return {"failures": job.failures + 1, "detail": detail_of(error)}

    def _release(self, job: StoredJob, changes: Changes) -> None:
        now = now_ms()
        if not self._jobs.release(job, changes, now=now, due_ms=now + self._patience(job, changes, now)):
            LOG.warning("%s is attended to by somebody else; what was found is dropped", job.run_id)

    def _patience(self, job: StoredJob, changes: Changes, now: int) -> int:
        poll = int(self._settings.operator.service.poll_seconds * 1000)
        failures = int(changes.get("failures", 0))
        if failures:
            return int(min(poll * 2.0 ** min(failures, 10), _MOST_PATIENCE_MS))
        if job.phase != "launched" or job.cancel_ms is not None:
            return min(poll, 500)
        return poll if now - job.submitted_ms < _YOUNG_MS else min(poll * _SELDOM, _MOST_PATIENCE_MS)
