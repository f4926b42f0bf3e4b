"""A store that says nothing is given up, in questions and in transfers; what hangs is left behind."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore.supervisor.remote.store import Location, StoreError
from hostcore.supervisor.remote.transfer import Wanted, bring


@pytest.fixture
def silence(memory: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The store never answers, before the test is over."""
    over = threading.Event()

    def wait(*_: Any, **__: Any) -> None:
        over.wait()
        raise ConnectionError("too late")

    for method in ("info", "cat_file", "get_file"):
        monkeypatch.setattr(type(memory), method, wait)
    yield
    over.set()


def test_a_question_that_is_not_answered_is_an_outage(memory: Any, silence: None) -> None:
    place = attrs.evolve(Location.of("memory://a"), answer_seconds=0.05)
    for ask in (place.read, place.listing):
        with pytest.raises(StoreError, match=r"no answer within 0\.05 seconds") as caught:
            ask()
        assert caught.value.is_outage


def test_a_transfer_of_which_no_byte_arrives_is_an_outage(memory: Any, silence: None, tmp_path: Path) -> None:
    wanted = [Wanted(source="/a", uri="memory://a", target=tmp_path / "a", size=3)]
    with pytest.raises(StoreError, match="no byte has arrived") as caught:
        bring(memory, wanted, label="a", stall_seconds=0.05)
    assert (caught.value.is_outage, caught.value.file) == (True, "memory://a")


def test_what_does_not_fit_on_the_disk_is_not_begun(memory: Any, tmp_path: Path) -> None:
    wanted = [Wanted(source="/a", uri="memory://a", target=tmp_path / "a", size=10**18)]
    with pytest.raises(StoreError, match="has room for") as caught:
        bring(memory, wanted, label="a")
    assert caught.value.code == "store.no_space"
