"""The events that end an attempt, and the status that a run has by each."""

from typing import Any

from hostcore.events.merger import Entry
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError

End = events.RunSucceeded | events.RunFailed | events.RunCancelled | events.RunPreempted

STATUS: dict[type[Any], str] = {
    events.RunSucceeded: "succeeded",
    events.RunFailed: "failed",
    events.RunCancelled: "cancelled",
    events.RunPreempted: "preempted",
}


def is_end(entry: Entry) -> bool:
    """Return True if an event ends its attempt."""
    return type(entry.payload) in STATUS


def failing_for(payload: End, error: RunError | None) -> End:
    """Return the end of an attempt: a success becomes a failure if something required was not delivered."""
    if error is None or not isinstance(payload, events.RunSucceeded):
        return payload
    return events.RunFailed(error=error)
