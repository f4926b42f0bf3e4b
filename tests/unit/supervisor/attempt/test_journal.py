"""The journal of an attempt, and the listeners that it tells, each of them guarded."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from hostcore.events.codec import CorruptLog
from hostcore.events.merger import Line
from hostcore.events.reader import read_events
from hostcore.events.writer import RankLog
from hostcore.supervisor.attempt.journal import Journal, Listener
from hostcore.supervisor.attempt.lease_guard import LeaseGuard, RunTakenOver
from hostcore.supervisor.opening import open_run
from hostcore_hookspecs import Event, ReporterContext
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import (
    CheckpointSaved,
    EpochStarted,
    Metrics,
    Payload,
    ReporterFailed,
    RunFailed,
    RunPreempted,
    RunSucceeded,
    StopRequested,
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


@attrs.define
class Readers:
    """Those that read the log: what they are called with, and what they have to say."""

    started: list[int] = attrs.field(factory=list)
    heard: list[int] = attrs.field(factory=list)
    say: list[Payload] = attrs.field(factory=list)

    def start(self, ctx: ReporterContext) -> None:
        self.started.append(ctx.last_seq)

    def hear(self, lines: Sequence[Line]) -> None:
        self.heard += [line.event.seq for line in lines]

    def news(self) -> list[Payload]:
        said, self.say = self.say, []
        return said


@pytest.fixture
def journal(plan: Callable) -> Callable[..., Journal]:
    """``journal(listener, …)``: the open journal of a new attempt."""

    def make(*listeners: Heard, readers: Readers | None = None, **keys: Any) -> Journal:
        opening = open_run(plan(**keys))
        made = Journal(opening, plan().job, [one.listener for one in listeners], readers=readers)
        made.open()
        return made

    return make


def written(plan: Callable) -> list[Event]:
    return [event for event, _ in read_events(plan().directory.events)]


class TestAListener:
    def test_hears_everything(self, journal: Callable) -> None:
        ear = Heard("ear")
        log = journal(ear)
        log.note(EpochStarted())
        log.end(RunSucceeded())
        assert ear.heard == ["epoch_started", "run_succeeded"]

    def test_that_raises_is_told_nothing_more_and_named_in_the_log(self, journal: Callable, plan: Callable) -> None:
        broken, ear = Heard("broken", raise_at="epoch_started"), Heard("ear")
        log = journal(broken, ear)
        log.note(EpochStarted())
        log.end(RunSucceeded())
        assert broken.heard == ["epoch_started"]
        assert sorted(ear.heard) == ["epoch_started", "reporter_failed", "run_succeeded"]
        (failure,) = [event for event in written(plan) if event.name == "reporter_failed"]
        assert (failure.payload.reporter, failure.payload.message) == ("broken", "ValueError: broken is broken")

    @pytest.mark.parametrize("error", [SystemExit(1), AttributeError("x"), MemoryError(), StopIteration()], ids=repr)
    def test_may_raise_anything(self, journal: Callable, plan: Callable, error: BaseException) -> None:
        log = journal(Heard("broken", raise_at="epoch_started", error=error))
        log.note(EpochStarted())
        log.end(RunSucceeded())
        assert [event.name for event in written(plan)] == ["epoch_started", "reporter_failed", "run_succeeded"]

    def test_may_raise_what_has_no_text(self, journal: Callable, plan: Callable) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        journal(Heard("broken", raise_at="epoch_started", error=Mute())).note(EpochStarted())
        assert "Mute" in written(plan)[-1].payload.message

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
    def test_merges_what_the_worker_writes_and_holds_its_end_back(self, journal: Callable, plan: Callable) -> None:
        log = journal()
        rank = RankLog(plan().directory.rank_events(1, 0))
        rank.write(Metrics(metrics={"train/loss": 0.5}), step=10, epoch=1)
        rank.write(RunSucceeded(reason="done"), step=10, epoch=1)
        log.merge()
        assert [event.name for event in written(plan)] == ["metrics"]
        assert (log.step, log.epoch, log.metrics) == (10, 1, {"train/loss": 0.5})
        log.note(Warning(code="x", message="a picture"))
        log.end(log.said[0].payload, said_by=0)
        assert [event.name for event in written(plan)] == ["metrics", "warning", "run_succeeded"]
        assert written(plan)[-1].src[:2] == (0, 1)

    def test_writes_many_events_of_a_worker_at_once(
        self, journal: Callable, plan: Callable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log, write, written_at_once = journal(readers=(readers := Readers())), os.write, []
        rank = RankLog(plan().directory.rank_events(1, 0))
        for step in range(1000):
            rank.write(Metrics(metrics={"train/loss": 0.5}), step=step, epoch=1)
        monkeypatch.setattr(os, "write", lambda *given: written_at_once.append(given) or write(*given))
        log.merge()
        assert len(written_at_once) == 4
        assert [event.step for event in written(plan)] == list(range(1000))
        assert readers.heard == list(range(1, 1001))

    def test_takes_what_stands_before_a_damaged_line(self, journal: Callable, plan: Callable) -> None:
        log = journal()
        path = plan().directory.rank_events(1, 0)
        RankLog(path).write(Metrics(metrics={"train/loss": 0.5}), step=10, epoch=1)
        with path.open("ab") as damaged:
            damaged.write(b"no event\n")
        with pytest.raises(CorruptLog):
            log.merge()
        assert ([event.name for event in written(plan)], log.step) == (["metrics"], 10)

    def test_writes_one_end_though_the_worker_changed_its_mind(self, journal: Callable, plan: Callable) -> None:
        log = journal()
        rank = RankLog(plan().directory.rank_events(1, 0))
        rank.write(RunSucceeded(), step=3, epoch=0)
        rank.write(RunFailed(error=RunError(type="ValueError", message="no")), step=3, epoch=0)
        log.merge()
        log.end(log.said[0].payload, said_by=0)
        assert [event.name for event in written(plan)] == ["run_failed"]

    def test_remembers_who_asked_first_to_stop(self, journal: Callable, plan: Callable) -> None:
        log = journal()
        rank = RankLog(plan().directory.rank_events(1, 0))
        rank.write(StopRequested(reason="enough", requested_by="component"), step=3, epoch=0)
        rank.write(StopRequested(reason="now", requested_by="user"), step=3, epoch=0)
        log.merge()
        assert log.requested_by == "component"

    def test_numbers_on_where_the_attempt_before_ended(self, plan: Callable, past: Callable) -> None:
        for attempt in (1, 2):
            log = Journal(past(plan()).attempt(attempt), plan().job)
            log.open()
            log.note(EpochStarted())
            log.close()
        assert [(event.seq, event.attempt) for event in written(plan)] == [(1, 1), (2, 2)]

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

    def test_takes_up_what_a_worker_wrote_after_its_supervisor_had_died(self, plan: Callable, past: Callable) -> None:
        run = past(plan())
        opening = run.attempt()
        first = Journal(opening, plan().job)
        first.open()
        rank = RankLog(opening.directory.rank_events(1, 0))
        rank.write(Metrics(metrics={}), step=10, epoch=0)
        first.merge()  # and here the supervisor is killed
        rank.write(StopRequested(reason="the supervisor is gone", requested_by="host"), step=11, epoch=0)
        rank.write(CheckpointSaved(path="checkpoints/step-000011", bytes=1, final=False), step=11, epoch=0)
        rank.write(RunPreempted(reason="the supervisor is gone"), step=11, epoch=0)
        ear = Heard("ear")
        for attempt in (2, 3):
            opening = run.attempt(attempt)
            log = Journal(opening, plan().job, [ear.listener])
            log.open()
            log.end(RunSucceeded())
        events = written(plan)
        assert [(event.seq, event.attempt, event.name) for event in events] == [
            (1, 1, "metrics"),
            (2, 1, "stop_requested"),
            (3, 1, "checkpoint_saved"),
            (4, 1, "run_preempted"),
            (5, 2, "run_succeeded"),
            (6, 3, "run_succeeded"),
        ]
        assert ear.heard[:4] == ["stop_requested", "checkpoint_saved", "run_preempted", "run_succeeded"]
        assert log.step == 0, "what an earlier attempt did says nothing of where this one stands"

    def test_tells_readers_where_the_attempt_begins_before_it_writes_and_of_every_line(
        self, plan: Callable, past: Callable
    ) -> None:
        readers, run = Readers(), past(plan())
        for attempt in (1, 2):
            log = Journal(run.attempt(attempt), plan().job, readers=readers)
            log.open()
            log.note(EpochStarted())
            log.end(RunSucceeded())
        assert (readers.started, readers.heard) == ([0, 2], [1, 2, 3, 4])

    def test_writes_what_readers_have_to_say_once(self, journal: Callable, plan: Callable) -> None:
        readers = Readers()
        log = journal(readers=readers)
        log.note_news()
        readers.say = [ReporterFailed(reporter="r", message="m"), Warning(code="reporter.recovered", message="w")]
        log.note_news()
        log.note_news()
        log.end(RunSucceeded())
        assert [event.name for event in written(plan)] == ["reporter_failed", "warning", "run_succeeded"]
