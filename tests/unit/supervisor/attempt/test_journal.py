"""The journal of an attempt, and the listeners that it tells, each of them guarded."""

from collections.abc import Callable

import pytest

from hostcore.events.codec import CorruptLog
from hostcore.events.reader import read_events
from hostcore.events.writer import RankLog
from hostcore.supervisor.attempt.journal import Journal, Listener
from hostcore.supervisor.attempt.lease_guard import LeaseGuard, RunTakenOver
from hostcore.supervisor.opening import open_run
from hostcore_hookspecs import Event
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import (
    CheckpointSaved,
    EpochStarted,
    Metrics,
    RunFailed,
    RunSucceeded,
    Warning,
)


class Heard:
    """A listener that writes down what it is told, and raises at an event if it should."""

    def __init__(self, name: str, *, raise_at: str = "", error: BaseException | None = None) -> None:
        self.name = name
        self.heard: list[str] = []
        self._raise_at, self._error = raise_at, error or ValueError(f"{name} is broken")

    def _note(self, event: Event) -> None:
        self.heard.append(event.name)
        if event.name == self._raise_at:
            raise self._error

    @property
    def listener(self) -> Listener:
        return Listener(label=self.name, report_event=self._note)


@pytest.fixture
def journal(plan: Callable) -> Callable[..., Journal]:
    """``journal(listener, …)``: the open journal of a new attempt."""

    def make(*listeners: Heard) -> Journal:
        made = Journal(open_run(plan()), plan().job, [one.listener for one in listeners])
        made.open()
        return made

    return make


def written(plan: Callable) -> list[Event]:
    return [event for event, _ in read_events(plan().directory.events)]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class TestAListener:
    @pytest.mark.parametrize(
        "error", [SystemExit(1), AttributeError("x"), MemoryError(), StopIteration(), Mute()], ids=type
    )
    def test_may_raise_anything(self, journal: Callable, plan: Callable, error: BaseException) -> None:
        log = journal(Heard("broken", raise_at="epoch_started", error=error))
        log.note(EpochStarted())
        log.end(RunSucceeded())
        assert [event.name for event in written(plan)] == ["epoch_started", "reporter_failed", "run_succeeded"]

    def test_that_fails_at_the_end_is_known_but_nothing_comes_behind_the_end(
        self, journal: Callable, plan: Callable
    ) -> None:
        log = journal(*(Heard(str(number), raise_at="run_succeeded") for number in range(3)))
        log.end(RunSucceeded())
        assert [event.name for event in written(plan)] == ["run_succeeded"]
        assert [(one.reporter, one.message) for one in log.failures] == [
            (str(number), f"ValueError: {number} is broken") for number in range(3)
        ]


class TestTheJournal:
    def test_merges_what_the_worker_writes_and_holds_its_end_back_which_is_the_last_it_wrote(
        self, journal: Callable, plan: Callable
    ) -> None:
        log = journal()
        rank = RankLog(plan().directory.rank_events(1, 0))
        rank.write(Metrics(metrics={"train/loss": 0.5}), step=10, epoch=1)
        rank.write(RunSucceeded(reason="done"), step=10, epoch=1)
        rank.write(RunFailed(error=RunError(type="ValueError", message="no")), step=10, epoch=1)  # another mind
        log.merge()
        assert [event.name for event in written(plan)] == ["metrics"]
        assert (log.step, log.epoch, log.metrics) == (10, 1, {"train/loss": 0.5})
        log.note(Warning(code="x", message="a picture"))
        log.end(log.said[0].payload, said_by=0)
        assert [event.name for event in written(plan)] == ["metrics", "warning", "run_failed"]
        assert written(plan)[-1].src[:2] == (0, 1)

    def test_takes_what_stands_before_a_damaged_line(self, journal: Callable, plan: Callable) -> None:
        log = journal()
        path = plan().directory.rank_events(1, 0)
        RankLog(path).write(Metrics(metrics={"train/loss": 0.5}), step=10, epoch=1)
        with path.open("ab") as damaged:
            damaged.write(b"no event\n")
        with pytest.raises(CorruptLog):
            log.merge()
        assert ([event.name for event in written(plan)], log.step) == (["metrics"], 10)

    def test_writes_nothing_more_once_another_attempt_has_taken_over(self, plan: Callable, past: Callable) -> None:
        """In the middle of what it merges: that takes a while, and the process may be stopped for longer."""
        opening, now = past(plan()).attempt(), [0.0]
        lease_guard = LeaseGuard(opening.directory, 1, clock=lambda: now[0])

        def be_stopped(event: Event) -> None:
            if event.name == "checkpoint_saved":
                past(plan()).attempt(2)
                now[0] += 3600

        listeners = [Listener(label="here", report_event=be_stopped)]
        log = Journal(opening, plan().job, listeners, may_write=lease_guard.check)
        log.open()
        rank = RankLog(opening.directory.rank_events(1, 0))
        rank.write(CheckpointSaved(path="checkpoints/step-000011", bytes=1, final=False), step=11, epoch=0)
        for step in range(12, 400):
            rank.write(Metrics(metrics={}), step=step, epoch=0)
        with pytest.raises(RunTakenOver):
            log.merge()
        assert [event.name for event in written(plan)] == ["checkpoint_saved"] + ["metrics"] * 255
