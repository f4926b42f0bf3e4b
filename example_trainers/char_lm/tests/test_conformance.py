"""The conformance kit: every check of trainers is a test."""

from hostcore_conformance import parametrize_with_checks


@parametrize_with_checks("char_lm")
def test_conformance(check) -> None:
    check()
