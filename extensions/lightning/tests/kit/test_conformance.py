"""The conformance kit: every check of trainers and of data sources is a test."""

from hostcore_conformance import parametrize_with_checks


@parametrize_with_checks("lightning")
def test_the_trainer(check) -> None:
    check()


@parametrize_with_checks("indices")
def test_the_data_source(check) -> None:
    check()
