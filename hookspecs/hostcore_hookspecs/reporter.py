"""The reporter contract: a reader of the event log, in the supervisor. It cannot slow down or fail a run.

Each reporter is served by a thread of its own, from which all its methods are called, and which remembers in the run
directory how far it has come. While a reporter is slow, hangs or fails, its events wait in the log: none is lost, none
is reported out of order, and no step and no other reporter waits. Its exceptions decide what the host does next:

- :class:`~hostcore_hookspecs.errors.FatalError`: it gets no more events in this attempt;
- anything else: the same event again, a few times at once and then at growing intervals, until it is taken. The
  failure is recorded once.

A class may declare ``LIVE_ONLY = True``: it shows what happens now, and gets no events that earlier attempts have
left unreported.
"""

from collections.abc import Callable

import attrs

from hostcore_hookspecs.events import Event
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.markers import hookspec

REQUIRED = ("report_event",)


def _no_log(message: str) -> None:
    """A context that was made by hand has no log."""


@attrs.frozen(kw_only=True)
class ReporterContext:
    """Context of a reporter."""

    run_id: str
    attempt: int
    job: Job
    #: Absolute.
    run_dir: str
    #: The ``seq`` of the last event before this attempt; 0 for a new run. Events up to it may still come, if they
    #: were not reported before.
    last_seq: int = 0
    #: Writes a warning into the log of the run: the name of a value that has to be left out, for instance. Once for
    #: each finding; safe from any thread.
    warn: Callable[[str], None] = attrs.field(default=_no_log, eq=False, repr=False)


@hookspec(firstresult=True)
def open(ctx: ReporterContext) -> None:
    """Called once per attempt, before the first event; again if it raised. Optional.

    :param ctx: About the run.
    :raises FatalError: The reporter gets no events in this attempt.
    :raises Exception: The host calls it again, a few times at once and then at growing intervals.
    """


@hookspec(firstresult=True)
def report_event(event: Event) -> None:
    """Called for every event, in the order of ``seq``, at least once: after a failure or a crash, some come again.

    :param event: The event. ``event.as_dict()`` is the line of ``events.jsonl``.
    :raises TransientError: The host waits at least its ``retry_after_seconds``, and calls again.
    :raises FatalError: The reporter gets no more events in this attempt.
    :raises Exception: Any other is taken as a ``TransientError`` without a time.
    """


@hookspec(firstresult=True)
def close() -> None:
    """Called once per attempt, after its last event; flush here. Optional.

    :raises Exception: Recorded as ``reporter_failed``; it is not called again.
    """
