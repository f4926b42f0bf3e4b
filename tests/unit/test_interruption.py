"""A KeyboardInterrupt of a signal is told from one that a plugin raises."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hostcore.interruption import Interruption, interrupt, is_by_signal, signal_name


@pytest.fixture
def own_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, before)


def test_with_a_handler_of_the_hosts_every_other_keyboard_interrupt_is_a_plugins(own_handler: None) -> None:
    with pytest.raises(Interruption) as caught:
        signal.raise_signal(signal.SIGINT)
    assert is_by_signal(caught.value)
    assert not is_by_signal(KeyboardInterrupt())


def test_with_pythons_own_handler_it_is_taken_for_a_ctrl_c() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert is_by_signal(KeyboardInterrupt())
        with ThreadPoolExecutor(1) as thread:  # signals are handled in the main thread alone
            assert not thread.submit(is_by_signal, KeyboardInterrupt()).result()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("error", [ValueError(), SystemExit(), GeneratorExit()])
def test_no_other_exception_is_by_a_signal(error: BaseException) -> None:
    assert not is_by_signal(error)


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (40, "signal 40")])
def test_a_signal_has_its_name_or_its_number(number: int, name: str) -> None:
    assert signal_name(number) == name
