"""Reporters and listeners: each is called alone and guarded. And the journal that tells them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.events.reader import read_events
from hostcore.events.writer import RankLog
from hostcore.supervisor.journal import Journal
from hostcore.supervisor.opening import open_run
from hostcore.supervisor.reporting import Audience, Listener, listeners_of
from hostcore_hookspecs import Event, ReporterContext
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import (
    CheckpointSaved,
    EpochStarted,
    Metrics,
    RunFailed,
    RunPreempted,
    RunSucceeded,
    StopRequested,
    Warning,
)


class Heard:
    """A listener that writes down what it is told, and raises where it should."""

    def __init__(self, name: str, *, raise_in: str = "", error: BaseException | None = None) -> None:
        self.name = name
        self.heard: list[Any] = []
        self._raise_in, self._error = raise_in, error or ValueError(f"{name} is broken")

    def _note(self, method: str, what: Any) -> None:
        self.heard.append(what)
        if method == self._raise_in:
            raise self._error

    @property
    def listener(self) -> Listener:
        return Listener(
            label=self.name,
            open=lambda ctx: self._note("open", "open"),
            report_event=lambda event: self._note("report_event", event.name),
            close=lambda: self._note("close", "close"),
        )


@pytest.fixture
def journal(plan: Callable) -> Callable[..., Journal]:
    """``journal(listener, …)``: the open journal of a new attempt."""

    def make(*listeners: Heard, **keys: Any) -> Journal:
        opening = open_run(plan(**keys))
        made = Journal(opening, plan().job, Audience([one.listener for one in listeners]))
        made.open()
        return made

    return make


def written(plan: Callable) -> list[Event]:
    return [event for event, _ in read_events(plan().directory.events)]


class TestAListener:
    def test_hears_everything_between_open_and_close(self, journal: Callable) -> None:
        ear = Heard("ear")
        log = journal(ear)
        log.note(EpochStarted())
        log.end(RunSucceeded())
        assert ear.heard == ["open", "epoch_started", "run_succeeded", "close"]

    @pytest.mark.parametrize(
        ("where", "heard"),
        [
            ("open", ["open"]),
            ("report_event", ["open", "epoch_started"]),
            ("close", ["open", "epoch_started", "run_succeeded", "close"]),
        ],
    )
    def test_that_raises_is_told_nothing_more_and_named_in_the_log(
        self, journal: Callable, plan: Callable, where: str, heard: list[str]
    ) -> None:
        broken, ear = Heard("broken", raise_in=where), Heard("ear")
        log = journal(broken, ear)
        log.note(EpochStarted())
        log.end(RunSucceeded())
        assert broken.heard == heard
        (failure,) = [event for event in written(plan) if event.name == "reporter_failed"]
        assert (failure.payload.reporter, failure.payload.message) == ("broken", "ValueError: broken is broken")

    @pytest.mark.parametrize("where", ["open", "report_event"])
    def test_hears_that_another_one_failed(self, journal: Callable, where: str) -> None:
        ear = Heard("ear")
        log = journal(Heard("broken", raise_in=where), ear)
        log.note(EpochStarted())
        log.end(RunSucceeded())
        assert sorted(ear.heard) == ["close", "epoch_started", "open", "reporter_failed", "run_succeeded"]

    def test_that_is_closed_is_told_nothing_more(self, journal: Callable) -> None:
        ear = Heard("ear")
        journal(ear, Heard("broken", raise_in="close")).end(RunSucceeded())
        assert ear.heard == ["open", "run_succeeded", "close"]

    @pytest.mark.parametrize("error", [SystemExit(1), AttributeError("x"), MemoryError(), StopIteration()], ids=repr)
    def test_may_raise_anything(self, journal: Callable, plan: Callable, error: BaseException) -> None:
        journal(Heard("broken", raise_in="report_event", error=error)).end(RunSucceeded())
        assert [event.name for event in written(plan)] == ["run_succeeded", "reporter_failed"]

    def test_may_raise_what_has_no_text(self, journal: Callable, plan: Callable) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        journal(Heard("broken", raise_in="report_event", error=Mute())).end(RunSucceeded())
        assert "Mute" in written(plan)[-1].payload.message

    def test_when_all_fail_each_is_named_once(self, journal: Callable, plan: Callable) -> None:
        log = journal(*(Heard(str(number), raise_in="report_event") for number in range(5)))
        log.end(RunSucceeded())
        assert [event.payload.reporter for event in written(plan)[1:]] == ["0", "1", "2", "3", "4"]


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
            log = Journal(past(plan()).attempt(attempt), plan().job, Audience([]))
            log.open()
            log.note(EpochStarted())
            log.close()
        assert [(event.seq, event.attempt) for event in written(plan)] == [(1, 1), (2, 2)]

    def test_takes_up_what_a_worker_wrote_after_its_supervisor_had_died(self, plan: Callable, past: Callable) -> None:
        run = past(plan())
        opening = run.attempt()
        first = Journal(opening, plan().job, Audience([]))
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
            log = Journal(opening, plan().job, Audience([ear.listener]))
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
        assert ear.heard[:5] == ["open", "stop_requested", "checkpoint_saved", "run_preempted", "run_succeeded"]
        assert log.step == 0, "what an earlier attempt did says nothing of where this one stands"


def test_reporters_of_a_job_become_listeners_named_by_their_distribution(
    site_here: Any, plan: Callable, tmp_path: Path
) -> None:
    source = """
        HEARD = []
        class Reporter:
            def open(self, ctx): HEARD.append(("open", ctx.run_id, ctx.attempt, ctx.last_seq))
            def report_event(self, *, event): HEARD.append(event.name)
        class WithoutOpen:
            def report_event(self, event): HEARD.append("second")
    """
    site_here.install(
        "loud",
        version="2.1",
        modules={"loud_reporter.py": source},
        entry_points={"hostcore.reporters": {"loud": "loud_reporter:Reporter", "second": "loud_reporter:WithoutOpen"}},
    )
    job = plan(reporters=["loud", "second"])
    listeners = listeners_of(job.reporters)
    assert ["loud 2.1" in one.label for one in listeners] == [True, True]
    audience = Audience(listeners)
    event = Event(seq=1, time_ms=0, run_id="a", attempt=1, payload=EpochStarted())
    context = ReporterContext(run_id="a", attempt=1, job=job.job, run_dir=str(tmp_path), last_seq=4)
    assert audience.open(context) == audience.tell(event) == audience.close() == []
    assert sys.modules["loud_reporter"].HEARD == [("open", "a", 1, 4), "epoch_started", "second"]
