"""Signals while a run of another process is followed: what is requested is reported, and retried until it succeeds."""

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from hostcore.cli.follow import EventScreen, WatchedRun
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore_hookspecs.errors import FatalError, TransientError


class Run(WatchedRun):
    """A run whose engine refuses some requests to stop.

    :param during: Called before each check for signals; the run ends after the last one.
    """

    retry_seconds = 0.0
    run_id = "a"
    words = ("a",)

    def __init__(self, *errors: Exception, during: Sequence[Callable[[], object]]) -> None:
        self.errors = list(errors)
        self.during = during
        self.asked: list[str] = []

    def lines(self, meanwhile: Callable[[], None]) -> Iterator[bytes]:
        for happens in self.during:
            happens()
            meanwhile()
        return iter(())

    def stop(self, reason: str) -> None:
        self.asked.append(reason)
        if self.errors:
            raise self.errors.pop(0)

    def screen(self) -> EventScreen:
        return EventScreen(None)

    def result(self) -> Any:
        return "its result"


def nothing() -> None:
    """What happens between two checks."""


@pytest.fixture
def interrupts() -> Interrupts:
    return Interrupts()


@pytest.fixture
def ctrl_c(interrupts: Interrupts) -> Callable[[], None]:
    def once() -> None:
        wish = Asked(status="cancelled", reason="interrupted by the user", requested_by="user")
        interrupts.hear(wish, hurried=False, forced=interrupts.first is not None)

    return once


def test_one_ctrl_c_cancels_it_once_and_its_result_is_waited_for(
    interrupts: Interrupts, ctrl_c: Callable[[], None]
) -> None:
    run = Run(during=[nothing, ctrl_c, nothing, nothing])
    assert run.follow(interrupts) == "its result"
    assert run.asked == ["interrupted by the user"]


def test_a_request_that_fails_for_the_moment_is_made_again_and_reported_when_it_was_made(
    interrupts: Interrupts, ctrl_c: Callable[[], None], capsys: pytest.CaptureFixture
) -> None:
    busy = TransientError("the engine is busy")
    run = Run(busy, busy, during=[ctrl_c, *[nothing] * 5])
    run.follow(interrupts)
    assert len(run.asked) == 3
    assert capsys.readouterr().err.splitlines() == [
        "a  cannot be asked to stop yet: the engine is busy; trying again",
        "a  is asked to stop; Ctrl-C once more ends the waiting, not the request",
    ]


def test_a_request_that_was_refused_is_not_reported_as_made(
    interrupts: Interrupts, ctrl_c: Callable[[], None], capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(FatalError, match="not yours"):
        Run(FatalError("not yours"), during=[ctrl_c]).follow(interrupts)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("errors", "state"),
    [([], "is still asked to stop"), ([TransientError("busy")] * 9, "could not be asked to stop, and goes on")],
)
def test_a_second_ctrl_c_ends_the_watching_and_reports_the_outcome_of_the_first(
    interrupts: Interrupts, ctrl_c: Callable[[], None], capsys: pytest.CaptureFixture, errors: list, state: str
) -> None:
    run = Run(*errors, during=[ctrl_c, ctrl_c])
    with pytest.raises(SystemExit) as ended:
        run.follow(interrupts)
    assert (ended.value.code, len(run.asked)) == (130, 1)
    assert capsys.readouterr().err.splitlines()[-1] == f"a  {state}; `hostcore logs -f a` shows how it goes"


def test_two_at_once_cancel_it_and_leave(interrupts: Interrupts, ctrl_c: Callable[[], None]) -> None:
    ctrl_c()
    run = Run(during=[ctrl_c])
    with pytest.raises(SystemExit):
        run.follow(interrupts)
    assert run.asked == ["interrupted by the user"]


def test_another_signal_leaves_it_alone(interrupts: Interrupts, capsys: pytest.CaptureFixture) -> None:
    def terminated() -> None:
        wish = Asked(status="preempted", reason="received SIGTERM", requested_by="signal:SIGTERM")
        interrupts.hear(wish, hurried=True, forced=False)

    run = Run(during=[terminated])
    with pytest.raises(SystemExit) as ended:
        run.follow(interrupts)
    assert (ended.value.code, run.asked) == (128 + signal.SIGTERM, [])
    assert "goes on without being watched" in capsys.readouterr().err
