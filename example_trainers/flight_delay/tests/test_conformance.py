"""The conformance kit: every check of trainers is a test."""

from hostcore_conformance import parametrize_with_checks


@parametrize_with_checks("flight_delay")
def test_conformance(check) -> None:
    check()
