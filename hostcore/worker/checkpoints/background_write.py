"""A checkpoint written in the background: the loop waits for the copy of its state, a thread for the disk."""

import threading
from collections.abc import Callable

import attrs

from hostcore.checkpoints.record import CommitRecord


@attrs.frozen(kw_only=True)
class Written:
    """How a write ended: a record, or what went wrong."""

    step: int
    final: bool
    #: None on the ranks that do not commit.
    record: CommitRecord | None = None
    error: BaseException | None = None


class BackgroundWrite:
    """One write in flight.

    :param write: Writes, and commits on the rank that does; called in a thread of its own.
    :param when_ended: Called in that thread when it is over, however it ended.
    """

    def __init__(
        self, write: Callable[[], CommitRecord | None], *, step: int, final: bool, when_ended: Callable[[], None]
    ) -> None:
        self._step = step
        self._final = final
        self._write = write
        self._when_ended = when_ended
        self._written: Written
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"checkpoint of step {step}")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._written = Written(step=self._step, final=self._final, record=self._write())
        except BaseException as error:  # noqa: BLE001 - it is raised or told where the loop collects it
            self._written = Written(step=self._step, final=self._final, error=error)
        self._when_ended()

    def wait(self) -> Written:
        """Wait for its end."""
        self._thread.join()
        return self._written
