"""The table of events: nothing that hostcore writes is missing in it."""

from hostcore.events.kinds import EVENT_KINDS, MEASURED, PACED, EventKind
from hostcore_hookspecs.events import ENDS, PAYLOADS


def test_every_event_has_a_kind_and_an_end_is_what_the_contract_calls_one() -> None:
    assert set(EVENT_KINDS) == set(PAYLOADS)
    assert {name for name, kind in EVENT_KINDS.items() if kind is EventKind.END} == ENDS
    assert {"metrics", "validation", "test"} == MEASURED
    assert {"metrics", "progress"} == PACED
