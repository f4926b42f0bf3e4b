"""The reporter contract: a reader of the event log, in the supervisor. It cannot slow down or fail a run."""

import attrs

from hostcore_hookspecs.events import Event
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.markers import hookspec

REQUIRED = ("report_event",)


@attrs.frozen(kw_only=True)
class ReporterContext:
    """What a reporter is told about the run."""

    run_id: str
    attempt: int
    job: Job
    #: Absolute.
    run_dir: str
    #: The ``seq`` of the last event before this attempt; 0 for a new run.
    last_seq: int = 0


@hookspec(firstresult=True)
def open(ctx: ReporterContext) -> None:
    """Called once per attempt, before the first event. Optional.

    :param ctx: About the run.
    """


@hookspec(firstresult=True)
def report_event(event: Event) -> None:
    """Called for every event, in the order of ``seq``.

    :param event: The event. ``event.as_dict()`` is the line of ``events.jsonl``.
    """


@hookspec(firstresult=True)
def close() -> None:
    """Called once per attempt, after the last event. Optional."""
