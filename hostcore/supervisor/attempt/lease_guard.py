"""The guard of a run's lease: renews it, and checks before each write that no newer attempt has taken over."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from hostcore.events.writer import now_ms
from hostcore.runs.attempts import newest_claim
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import RENEW_SECONDS, Lease, ProcessIdentity
from hostcore_hookspecs.errors import HostcoreError

#: How old the last check for a newer attempt may be at a write. A process that was stopped, or a machine that was
#: suspended, checks again before it writes.
_FRESH_SECONDS: Final = 1.0


def uptime() -> float:
    """Seconds; unlike :func:`time.monotonic` on Linux, it goes on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class RunTakenOver(HostcoreError):
    """A newer attempt of the run has started elsewhere; this one must not write any more."""

    code = "run.taken_over"


class RunDirectoryGone(HostcoreError):
    """The run directory was removed while an attempt was using it.

    :param directory: What there was.
    """

    code = "run.gone"

    def __init__(self, directory: RunDirectory) -> None:
        what = "files of the run directory were" if directory.record.exists() else "the run directory was"
        super().__init__(
            f"{what} removed while the run was going on: {directory.path}",
            file=str(directory.path),
            hint="it was not hostcore: look into the code of the job's trainer and plugins, and at what cleans up old "
            "files on this machine; or its disk was unmounted",
        )


class LeaseGuard:
    """Holds the lease of a run directory for one attempt, which alone may write there."""

    def __init__(self, directory: RunDirectory, attempt: int, *, clock: Callable[[], float] = uptime) -> None:
        self._directory = directory
        self._attempt = attempt
        self._clock = clock
        self._checked_at = clock()
        self._renewal_due = clock() + RENEW_SECONDS
        self._workers: Sequence[int | None] = ()

    def show(self, workers: Sequence[int | None]) -> None:
        """Have the next renewal, due at once, write the process numbers of the workers, by rank."""
        self._workers, self._renewal_due = workers, self._clock()

    def renew(self, *, step: int, last_progress_ms: int) -> None:
        """Renew the lease when it is time.

        :param step: Finished steps.
        :param last_progress_ms: When the step last advanced, in milliseconds since 1970.
        :raises RunTakenOver: When the run is another attempt's; then nothing more may be written.
        """
        self.check()
        if self._clock() >= self._renewal_due:
            self._renewal_due = self._clock() + RENEW_SECONDS
            Lease(
                process=ProcessIdentity.current(),
                attempt=self._attempt,
                step=step,
                last_progress_ms=last_progress_ms,
                renewed_ms=now_ms(),
                workers=self._workers,
            ).write(self._directory.lease)

    def check(self) -> None:
        """See that no newer attempt has started, unless the last check is recent. To be called before each write.

        :raises RunTakenOver: When one has.
        """
        if self._clock() - self._checked_at >= _FRESH_SECONDS:
            self.require_held()

    def require_held(self) -> None:
        """See that no newer attempt has started, and that this one's claim is still there.

        :raises RunTakenOver: When one has.
        :raises RunDirectoryGone: When it is not.
        """
        newest = newest_claim(self._directory.attempts)
        if newest > self._attempt:
            raise RunTakenOver(
                f"attempt {newest} of run {self._directory.run_id!r} has taken it over from attempt "
                f"{self._attempt}, which has stopped",
                file=str(self._directory.lease),
            )
        if newest < self._attempt:
            raise RunDirectoryGone(self._directory)
        self._checked_at = self._clock()

    def release(self) -> None:
        """Remove the lease: the run is not running any more."""
        self._directory.lease.unlink(missing_ok=True)
