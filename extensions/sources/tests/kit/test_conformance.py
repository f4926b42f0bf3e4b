"""The conformance kit: every check of each data source is a test."""

from hostcore_conformance import parametrize_with_checks


@parametrize_with_checks("datasets")
def test_datasets(check) -> None:
    check()


@parametrize_with_checks("delta")
def test_delta(check) -> None:
    check()


@parametrize_with_checks("duckdb")
def test_duckdb(check) -> None:
    check()


@parametrize_with_checks("lance")
def test_lance(check) -> None:
    check()


@parametrize_with_checks("torch")
def test_torch(check) -> None:
    check()
