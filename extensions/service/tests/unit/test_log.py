"""What ``hostcore serve`` writes to its log."""

import logging

import pytest
from hostile_text import HOSTILE, TITLE_SHOWN, orders_in

from hostcore_service.server import _Scrubbed


@pytest.fixture
def formatter() -> logging.Formatter:
    return _Scrubbed("%(levelname)s %(message)s")


def record(message: str, *values: object, error: Exception | None = None) -> logging.LogRecord:
    about = (type(error), error, None) if error else None
    return logging.LogRecord("hostcore_service", logging.INFO, __file__, 1, message, values, about)


def test_what_a_client_says_makes_no_entry_of_its_own(formatter: logging.Formatter) -> None:
    text = formatter.format(record("%s: refused", f"{HOSTILE}\nINFO all is well"))
    assert orders_in(text) == []
    assert TITLE_SHOWN in text
    assert len(text.splitlines()) == 1


def test_a_traceback_stays_one(formatter: logging.Formatter) -> None:
    text = formatter.format(record("a defect\n", error=ValueError(f"bad\n{HOSTILE}")))
    assert orders_in(text) == []
    assert text.splitlines()[:2] == ["INFO a defect", "ValueError: bad"]
