"""The events that end an attempt, and the status that a run has by each."""

from typing import Any

from hostcore.events.merger import Entry
from hostcore_hookspecs import events

End = events.RunSucceeded | events.RunFailed | events.RunCancelled | events.RunPreempted

STATUS: dict[type[Any], str] = {
    events.RunSucceeded: "succeeded",
    events.RunFailed: "failed",
    events.RunCancelled: "cancelled",
    events.RunPreempted: "preempted",
}


def is_end(entry: Entry) -> bool:
    """Whether an event ends its attempt."""
    return type(entry.payload) in STATUS
