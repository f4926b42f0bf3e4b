"""How long an ended run waits for its reporters and uploaders, and what it says of what they have left."""

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from hostcore.supervisor.attempt import serving
from hostcore.supervisor.attempt.serving import SHORT_TIMEOUTS, Serving, Timeouts, fails_for
from hostcore.supervisor.delivery.backlog import Backlog, Pending
from hostcore.supervisor.delivery.reporters import Undelivered
from hostcore.supervisor.opening import open_run
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError


@attrs.define
class Reporters:
    """Stands for ``Reporters``: how many events they take, and until when."""

    settles_at: float = 0.0
    takes_until: float = 0.0
    required: Sequence[str] = ()
    failures: Sequence[Undelivered] = ()
    now: float = 0.0
    calls: list[str] = attrs.field(factory=list)

    @property
    def taken(self) -> float:
        return min(self.now, self.takes_until)

    def is_settled(self) -> bool:
        return self.now >= self.settles_at

    is_finished = is_settled

    def missing(self) -> list[str]:
        return [] if self.is_settled() else list(self.required)

    def hurry(self) -> None:
        self.calls.append("hurry")

    def news(self) -> list[events.Payload]:
        return []

    def finish(self) -> None:
        self.calls.append("finish")

    def abandon(self) -> list[str]:
        self.calls.append("abandon")
        return []


@attrs.define
class Uploaders:
    """Stands for ``Uploads``: when they have copied everything, and from when on they are in an outage."""

    drained_at: float = 0.0
    outage_from: float = float("inf")
    required: Sequence[str] = ()
    now: float = 0.0
    calls: list[str] = attrs.field(factory=list)

    def finish(self, *, final: bool) -> None:
        self.calls.append(f"finish {final}")

    def is_drained(self) -> bool:
        return self.now >= self.drained_at

    has_begun = True

    def news(self) -> list[events.Payload]:
        return []

    def missing(self) -> list[str]:
        return [] if self.is_drained() else list(self.required)

    def is_stuck(self) -> bool:
        return self.now > self.outage_from

    def pending(self) -> Pending:
        files = 0 if self.is_drained() else 3
        left = ["checkpoints/step-000001"] if files else []
        return Pending(by_uploader={"store": Backlog(files=files, left=left)})

    def abandon(self) -> None:
        self.calls.append("abandon")


@attrs.define
class Play:
    """A run that waits, on a clock that its waiting moves."""

    serving: Serving
    reporters: Reporters
    uploaders: Uploaders

    @property
    def now(self) -> float:
        return self.reporters.now


@pytest.fixture
def play(plan: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Play]:
    """``play(reporters, uploaders, leave_by=…)``."""

    def make(reporters: Reporters, uploaders: Uploaders, leave_by: float | None = None) -> Play:
        def sleep(_: float) -> None:
            reporters.now = uploaders.now = reporters.now + 0.5

        monkeypatch.setattr(serving, "Reporters", lambda *_, **__: reporters)
        monkeypatch.setattr(serving, "Uploads", lambda *_, **__: uploaders)
        monkeypatch.setattr(serving, "time", SimpleNamespace(sleep=sleep))  # of this module alone
        made = Serving(
            plan(),
            open_run(plan()),
            leave_by=lambda _: leave_by,
            meanwhile=lambda: None,
            clock=lambda: reporters.now,
        )
        return Play(made, reporters, uploaders)

    return make


def test_uploads_that_get_on_are_waited_for_however_long_it_takes(play: Callable[..., Play]) -> None:
    run = play(Reporters(), Uploaders(drained_at=5000.0, required=["store"]))
    assert run.serving.settle(Timeouts()) is None
    assert run.now >= 5000
    (told,) = run.serving.news()
    assert isinstance(told, events.Warning)
    assert told.message.startswith("the training is over; what is left is uploaded: 3 files")


def test_an_outage_is_waited_for_a_while_and_what_is_required_fails_the_run(play: Callable[..., Play]) -> None:
    run = play(Reporters(), Uploaders(drained_at=9999.0, outage_from=100.0, required=["store (a 1.0)"]))
    error = run.serving.settle(Timeouts(uploads=60.0))
    assert 160 <= run.now <= 163
    assert error is not None
    assert error.type == "NotDelivered"
    assert "store (a 1.0), which the job requires, has not everything" in error.message
    assert error.hint is not None
    assert error.hint.endswith("hostcore upload a --uploader store")


def test_an_outage_is_waited_for_once(play: Callable[..., Play]) -> None:
    run = play(Reporters(), Uploaders(drained_at=9999.0, outage_from=0.0))
    run.serving.settle(Timeouts())
    run.serving.finish(Timeouts())
    assert 9 <= run.now <= 12


def test_a_required_reporter_is_waited_for_as_long_as_it_takes_events(play: Callable[..., Play]) -> None:
    run = play(Reporters(settles_at=300.0, takes_until=300.0, required=["tracker"]), Uploaders())
    assert run.serving.settle(Timeouts()) is None
    assert run.now >= 300


def test_whoever_is_in_a_hurry_cuts_all_waiting_short(play: Callable[..., Play]) -> None:
    slow = play(Reporters(settles_at=900.0, takes_until=900.0), Uploaders(drained_at=900.0), leave_by=25.0)
    slow.serving.settle(Timeouts())
    assert 20 <= slow.now <= 21, "the end and its news get a part of the time"
    slow.serving.finish(Timeouts())
    assert 25 <= slow.now <= 26
    assert slow.reporters.calls == ["hurry", "finish", "abandon"]
    assert slow.uploaders.calls == ["finish False", "finish True", "abandon"]


def test_a_second_signal_ends_all_waiting_at_once(play: Callable[..., Play]) -> None:
    run = play(Reporters(settles_at=900.0, takes_until=900.0), Uploaders(drained_at=900.0), leave_by=-math.inf)
    run.serving.settle(Timeouts())
    run.serving.finish(Timeouts())
    assert run.now == 0


def test_before_a_restart_nothing_is_waited_for_long_even_if_it_gets_on(play: Callable[..., Play]) -> None:
    run = play(Reporters(settles_at=900.0, takes_until=900.0), Uploaders(drained_at=900.0))
    run.serving.settle(SHORT_TIMEOUTS)
    run.serving.finish(SHORT_TIMEOUTS)
    assert run.now <= 4 * (SHORT_TIMEOUTS.at_most + 0.5)


@pytest.mark.parametrize("end", [events.RunCancelled(reason="asked"), events.RunPreempted(reason="asked")])
def test_only_a_success_becomes_a_failure_by_what_was_not_delivered(end: Any) -> None:
    error = RunError(type="NotDelivered", message="no")
    assert fails_for(events.RunSucceeded(), error) == events.RunFailed(error=error)
    assert fails_for(events.RunSucceeded(), None) == events.RunSucceeded()
    assert fails_for(end, error) is end
