"""What Ctrl-C does to a run that is watched: it is said once it is done, and tried until it is."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from hostcore.cli.watching import WatchSignals
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore_hookspecs.errors import FatalError, TransientError

WATCH = ["hostcore", "logs", "-f", "a"]


class Engine:
    """Takes a request to stop when it has refused some."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked: list[str] = []

    def cancel(self, reason: str) -> None:
        self.asked.append(reason)
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture
def interrupts() -> Interrupts:
    return Interrupts()


@pytest.fixture
def signals(interrupts: Interrupts) -> Callable[..., WatchSignals]:
    seconds = iter(range(0, 10_000, 10))

    def make(engine: Engine) -> WatchSignals:
        more: dict[str, Any] = {"retry_on": TransientError, "watch": WATCH, "clock": lambda: float(next(seconds))}
        return WatchSignals("a", interrupts, cancel=engine.cancel, **more)

    return make


def ctrl_c(interrupts: Interrupts, *, twice: bool = False) -> None:
    wish = Asked(status="cancelled", reason="interrupted by the user", requested_by="user")
    interrupts.hear(wish, hurried=False, forced=twice)


def test_nothing_is_asked_before_a_signal_comes(signals: Callable, interrupts: Interrupts) -> None:
    engine = Engine()
    made = signals(engine)
    made.handle()
    assert engine.asked == []
    ctrl_c(interrupts)
    for _ in range(3):
        made.handle()
    assert engine.asked == ["interrupted by the user"], "once"


def test_a_request_that_fails_for_the_moment_is_made_again_and_told_when_it_was_made(
    signals: Callable, interrupts: Interrupts, capsys: pytest.CaptureFixture
) -> None:
    engine = Engine(TransientError("the engine is busy"), TransientError("the engine is busy"))
    made = signals(engine)
    ctrl_c(interrupts)
    made.handle()
    assert not made.cancel_was_sent
    for _ in range(5):
        made.handle()
    assert (made.cancel_was_sent, len(engine.asked)) == (True, 3)
    assert capsys.readouterr().err.splitlines() == [
        "a  cannot be asked to stop yet: the engine is busy; trying again",
        "a  is asked to stop; Ctrl-C once more ends the waiting, not the request",
    ]


def test_a_request_that_was_refused_is_not_said_to_be_made(
    signals: Callable, interrupts: Interrupts, capsys: pytest.CaptureFixture
) -> None:
    ctrl_c(interrupts)
    with pytest.raises(FatalError, match="not yours"):
        signals(Engine(FatalError("not yours"))).handle()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("errors", "state"),
    [([], "is still asked to stop"), ([TransientError("busy")] * 9, "could not be asked to stop, and goes on")],
)
def test_a_second_ctrl_c_ends_the_watching_and_says_what_came_of_the_first(
    signals: Callable, interrupts: Interrupts, capsys: pytest.CaptureFixture, errors: list, state: str
) -> None:
    engine = Engine(*errors)
    made = signals(engine)
    ctrl_c(interrupts)
    made.handle()
    ctrl_c(interrupts, twice=True)
    with pytest.raises(SystemExit) as ended:
        made.handle()
    assert (ended.value.code, len(engine.asked)) == (130, 1)
    assert capsys.readouterr().err.splitlines()[-1] == f"a  {state}; `hostcore logs -f a` shows how it goes"


def test_two_at_once_ask_and_leave(signals: Callable, interrupts: Interrupts) -> None:
    engine = Engine()
    ctrl_c(interrupts, twice=True)
    with pytest.raises(SystemExit):
        signals(engine).handle()
    assert engine.asked == ["interrupted by the user"]


def test_another_signal_leaves_without_asking(
    signals: Callable, interrupts: Interrupts, capsys: pytest.CaptureFixture
) -> None:
    engine = Engine()
    interrupts.hear(
        Asked(status="preempted", reason="received SIGTERM", requested_by="signal:SIGTERM"), hurried=True, forced=False
    )
    with pytest.raises(SystemExit) as ended:
        signals(engine).handle()
    assert (ended.value.code, engine.asked) == (128 + signal.SIGTERM, [])
    assert "goes on without being watched" in capsys.readouterr().err
