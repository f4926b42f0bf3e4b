"""The table of events: nothing that hostcore writes is missing in it."""

from hostcore.events.kinds import EVENT_KINDS, MEASURED, PACED, EventKind
from hostcore_hookspecs.events import ENDS, PAYLOADS


def test_every_event_has_a_kind() -> None:
    assert set(EVENT_KINDS) == set(PAYLOADS)


def test_an_end_is_what_the_contract_calls_one() -> None:
    assert {name for name, kind in EVENT_KINDS.items() if kind is EventKind.END} == ENDS


def test_the_events_with_metrics_and_with_a_pace_are_known_by_their_fields() -> None:
    assert {"metrics", "validation", "test"} == MEASURED
    assert {"metrics", "progress"} == PACED
