"""A store that says nothing is given up, in questions and in transfers; what hangs is left behind."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from hostcore_builtin_plugins.stores import get
from hostcore_builtin_plugins.stores.errors import StoreError, Unreachable
from hostcore_builtin_plugins.stores.get import Wanted, bring
from hostcore_builtin_plugins.stores.location import Location


def bring_one(memory: Any, folder: Path, *, size: int | None = None, stall_seconds: float = 120) -> Path:
    """Transfer one file of the store."""
    target = folder / "a"
    wanted = [Wanted(source="/a", uri="memory://a", target=target, size=size)]
    bring(memory, wanted, label="a", stall_seconds=stall_seconds)
    return target


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
        with pytest.raises(Unreachable, match=r"no answer within 0\.05 seconds"):
            ask()


def test_a_transfer_of_which_nothing_arrives_is_an_outage(
    memory: Any, silence: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get, "_JOIN_SECONDS", 0.05)
    with pytest.raises(Unreachable, match="nothing has arrived") as caught:
        bring_one(memory, tmp_path, size=3, stall_seconds=0.05)
    assert caught.value.file == "memory://a"


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets seconds pass for the transfer, until it has looked twice at what has arrived."""
    looks = threading.Semaphore(0)
    clock = SimpleNamespace(now=0.0)

    @contextmanager
    def counted_looks(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        yield lambda _: looks.release()

    def advance(seconds: float) -> None:
        clock.now += seconds
        while looks.acquire(blocking=False):
            pass
        for _ in range(2):
            looks.acquire(timeout=60)

    monkeypatch.setattr(get, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(get, "shown_progress", counted_looks)
    return advance


def test_a_file_that_grows_without_a_report_is_not_stalled(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pass_time: Callable[[float], None]
) -> None:
    def copy(_: Any, source: str, target: str, **__: Any) -> None:
        with Path(target).open("wb", buffering=0) as file:
            for _ in range(3):
                file.write(b"x")
                pass_time(100)

    monkeypatch.setattr(type(memory), "get_file", copy)
    assert bring_one(memory, tmp_path).read_bytes() == b"xxx"


@pytest.mark.parametrize(("module", "work"), [(get, "checked_digest"), (os, "fsync")])
def test_the_work_of_this_machine_is_not_a_stall(
    memory: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pass_time: Callable[[float], None],
    module: Any,
    work: str,
) -> None:
    done = getattr(module, work)

    def slow(*arguments: Any, **named: Any) -> Any:
        for _ in range(2):
            pass_time(1000)
        return done(*arguments, **named)

    monkeypatch.setattr(module, work, slow)
    memory.pipe_file("/a", b"content")
    assert bring_one(memory, tmp_path).read_bytes() == b"content"


def test_a_stalled_transfer_is_over_before_its_folder_is_removed(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()

    def drip(_: Any, source: str, target: str, *, callback: Any) -> None:
        never = threading.Event()
        try:
            while not never.wait(0.1):
                callback.relative_update(0)
        finally:
            stopped.set()

    monkeypatch.setattr(type(memory), "get_file", drip)
    with pytest.raises(StoreError, match="nothing has arrived"):
        bring_one(memory, tmp_path, stall_seconds=0.05)
    assert stopped.is_set()


def test_what_does_not_fit_on_the_disk_is_not_begun(memory: Any, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="has room for") as caught:
        bring_one(memory, tmp_path, size=10**18)
    assert caught.value.code == "store.no_space"
