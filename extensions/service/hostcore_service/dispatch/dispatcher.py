"""The thread that launches and watches jobs. Several services may share a database: one at a time holds a job."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import attrs
from sqlalchemy.exc import SQLAlchemyError

from hostcore.events.writer import now_ms
from hostcore.job.names import is_builtin
from hostcore.plugins.installed import Discovered
from hostcore.runs.lease import ProcessIdentity
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.dispatch.launcher_pool import LauncherPool
from hostcore_service.dispatch.launching import detail_of, is_transient, launch
from hostcore_service.dispatch.watching import look
from hostcore_service.settings import Settings
from hostcore_service.store.job import StoredJob
from hostcore_service.store.jobs import Jobs

LOG: Final = logging.getLogger("hostcore_service")

#: Between two looks for jobs that are due.
_TICK_SECONDS: Final = 0.25
#: The errors of launchers after which it is certain that this launch has started nothing, whatever came before.
_NOT_STARTED: Final = frozenset({"launch.not_started", "launch.name_taken"})
_MOST_REFUSALS: Final = 1000
#: Between two lines in the log about a database that does not answer.
_QUIET_SECONDS: Final = 60.0
#: How long a call of a launcher may take. Until then the job stays this process's.
LONGEST_SECONDS: Final = 600.0
#: How long the calls that are under way have to finish when the service ends.
STOP_SECONDS: Final = 4.0
#: A launcher that does not answer is asked again after so long at the most.
_MOST_PATIENCE_MS: Final = 60_000
#: A job that has run for so long is looked at less often.
_YOUNG_MS: Final = 60_000
_SELDOM: Final = 5


class Dispatcher:
    """Launches recorded jobs, watches them, and cancels them on request.

    A job goes from ``queued`` over ``launching``, which is written down before its launcher is called, to ``launched``
    with the launcher's handle, and to ``ended``. A holder that finds one ``launching`` calls its launcher again
    with the same launch id, for which nothing is started twice.

    :param longest_seconds: How long a call of a launcher may take before it is given up.
    """

    def __init__(
        self, jobs: Jobs, settings: Settings, discovered: Discovered, *, longest_seconds: float = LONGEST_SECONDS
    ) -> None:
        self._leases = jobs.leases
        self._settings = settings
        self._discovered = discovered
        self._awake = threading.Event()
        self._stopping = threading.Event()
        #: Whether there was less room than there may be jobs.
        self._full = False
        self._turn = 0
        self._renewed = float("-inf")
        self._told = float("-inf")
        #: By launch id.
        self._refusals: OrderedDict[str, HostcoreError] = OrderedDict()
        rooms = settings.operator.service.launches_at_once
        self._pool = LauncherPool(rooms, longest_seconds=longest_seconds, when_free=self._when_free)
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what was begun, if that is soon done, and end. Another dispatcher does the rest."""
        self._stopping.set()
        self._awake.set()
        deadline = time.monotonic() + STOP_SECONDS
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        try:
            self._leases.let_go(self._pool.finish(max(0.0, deadline - time.monotonic())), now=now_ms())
        except SQLAlchemyError as error:
            LOG.warning("the database does not answer: %s", _first_line(error))

    def wake(self) -> None:
        """Look for jobs now."""
        self._awake.set()

    def _when_free(self) -> None:
        if self._full:
            self._awake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._awake.clear()
            try:
                self._keep_leases()
                more = self._look_for_work()
            except SQLAlchemyError as error:
                self._tell_of_database(error)
                more = False
            except Exception:  # whatever it is: without this thread nothing is launched any more
                LOG.exception("looking for work failed; it is tried again")
                more = False
            if not more:
                self._awake.wait(_TICK_SECONDS)

    def _tell_of_database(self, error: SQLAlchemyError) -> None:
        """Once a minute: it is asked several times a second."""
        now = time.monotonic()
        if now - self._told >= _QUIET_SECONDS:
            self._told = now
            LOG.warning("the database does not answer, and is asked again: %s", _first_line(error))

    def _keep_leases(self) -> None:
        """Renew the leases on the jobs in work, and end those of processes that have died."""
        began = time.monotonic()
        if began - self._renewed < self._leases.lease_ms / 1000 / 4:
            return
        for job in self._pool.give_up():
            LOG.error("the launcher of %s has not come back; another holder calls it again", job.run_id)
        self._leases.renew(self._pool.jobs, now=now_ms())
        self._leases.forget(dead(self._leases.holders()))
        self._renewed = began

    def _look_for_work(self) -> bool:
        """Hand jobs to the pool; whether there may be more, and room for them."""
        free = self._pool.free
        self._turn += 1
        local = self._settings.operator.service.local_at_once
        # Now, before the question whether it ends: what `stop` lets go of after this moment is not due at it.
        name, now = holder_name(self._turn), now_ms()
        if self._stopping.is_set():
            return False
        claimed = self._leases.claim(name, now=now, limit=free, local_at_once=local) if free else []
        if self._stopping.is_set():  # `stop` may not wait for them
            self._leases.let_go(claimed, now=now_ms())
            return False
        self._full = len(claimed) == free
        for job in claimed:
            self._pool.start(job, self._handle_and_release)
        return self._full and self._pool.free > 0

    def _handle_and_release(self, job: StoredJob) -> None:
        try:
            self._handle(job)
        except SQLAlchemyError as error:
            self._tell_of_database(error)
        except Exception:
            LOG.exception("handling %s failed; it is looked at again in %s ms", job.run_id, self._leases.lease_ms)

    def _handle(self, job: StoredJob) -> None:
        if job.phase == "queued":
            if job.cancel_ms is not None:
                why = job.cancel_reason or "cancelled before it was launched"
                self._release(job, job.ended("cancelled", why, ended_ms=now_ms()))
                return
            if not self._leases.write(job, attrs.evolve(job, phase="launching"), now=now_ms()):
                return  # this holder does not hold it any more
        try:
            if job.phase == "launched":
                after = look(job, self._settings, self._discovered)
            else:
                after = launch(job, self._settings, self._discovered)
        except HostcoreError as error:
            LOG.warning("%s: %s", job.run_id, detail_of(error))
            after = self._after_error(job, error)
        except SQLAlchemyError:
            raise
        except Exception as error:  # a defect, which must not have the launcher called without end and at once
            LOG.exception("handling %s failed", job.run_id)
            after = self._after(job, f"{type(error).__name__}: {error}", final=False)
        self._release(job, after)

    def _after_error(self, job: StoredJob, error: HostcoreError) -> StoredJob:
        detail = detail_of(error)
        if job.phase != "launched" and error.code in _NOT_STARTED:
            return self._refused(job, error)
        if is_transient(error) or job.phase == "launched":
            return self._after(job, detail, final=False)
        if job.phase == "launching":  # what the call before did is unknown: it may have started something
            return self._after(job, f"it may run already, and its launcher is asked again: {detail}", final=False)
        return self._refused(job, error)

    def _refused(self, job: StoredJob, error: HostcoreError) -> StoredJob:
        """A job that its launcher has not started, and does not start."""
        self._refusals[job.launch_id] = error
        while len(self._refusals) > _MOST_REFUSALS:
            self._refusals.popitem(last=False)
        return self._after(job, detail_of(error), final=True)

    def refusal(self, launch_id: str) -> HostcoreError | None:
        """Return the recent error that kept a job from starting; None without one."""
        return self._refusals.get(launch_id)

    def _after(self, job: StoredJob, detail: str, *, final: bool) -> StoredJob:
        """Return a job after an error of its launcher: to be polled again, or ended if the error is final."""
        if final:
            return job.ended("failed", detail, ended_ms=now_ms())
        patience_ms = self._settings.operator.service.cancel_grace_seconds * 1000
        if job.cancel_ms is not None and now_ms() - job.cancel_ms > patience_ms:
            unknown = f"it was cancelled, and its launcher does not report whether it has ended: {detail}"
            return job.ended("lost", unknown, ended_ms=now_ms())
        return attrs.evolve(job, failures=job.failures + 1, detail=detail)

    def _release(self, job: StoredJob, after: StoredJob) -> None:
        now = now_ms()
        if not self._leases.release(job, after, now=now, due_ms=now + self._patience(job, after.failures, now)):
            LOG.warning("%s is not held by this holder any more; what was found is dropped", job.run_id)

    def _patience(self, job: StoredJob, failures: int, now: int) -> int:
        poll = int(self._settings.operator.service.poll_seconds * 1000)
        if failures:
            return int(min(poll * 2.0 ** min(failures, 10), _MOST_PATIENCE_MS))
        if job.phase != "launched" or job.cancel_ms is not None:
            return min(poll, 500)
        often = now - job.submitted_ms < _YOUNG_MS or is_builtin(job.launcher, "local")
        return poll if often else min(poll * _SELDOM, _MOST_PATIENCE_MS)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def holder_name(turn: int) -> str:
    """The process that asks, at one of its turns: what is written at an earlier one does not pass for a later one's."""
    process = ProcessIdentity.current()
    return "/".join(
        map(str, (process.host, process.boot_id, process.pid_namespace, process.pid, process.start_time, turn))
    )


def dead(holders: Iterable[str]) -> list[str]:
    """Return the lease holders that were processes of this machine and have ended."""
    return [name for name in holders if _is_dead(name)]


def _is_dead(name: str) -> bool:
    host, boot_id, *namespace, pid, start_time, _ = name.split("/")  # an earlier version has named none
    process = ProcessIdentity(
        host=host, boot_id=boot_id, pid=int(pid), start_time=int(start_time), pid_namespace="".join(namespace)
    )
    return process.is_here and not process.runs
