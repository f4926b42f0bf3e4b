"""The wait of an ended run for its reporters and uploaders, and its report of what they have left."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from desk import Ear
from uploading import QUICK, Folder, Gate, Run, context, destination, until

from hostcore.events.merger import Entry, EventLog
from hostcore.supervisor.delivery.artifacts_source import UploadLimits
from hostcore.supervisor.delivery.delivery import SHORT_WAIT, Delivery, WaitLimits
from hostcore.supervisor.delivery.units import Inventory
from hostcore.supervisor.delivery.uploads import Uploads
from hostcore_hookspecs import Job, ReporterContext, events


@attrs.define(eq=False)
class Ended:
    """A run that waits, on a clock that its waiting moves; slowly unless ``is_ready``, whatever the machine does."""

    uploads: Uploads = attrs.field(init=False)
    delivery: Delivery = attrs.field(init=False)
    leave_by: float | None = None
    is_ready: Callable[[], object] = lambda: True
    now: float = 0.0
    stuck: int = 0
    emitted: list[events.Payload] = attrs.field(factory=list)

    def tick(self) -> None:
        self.emitted += self.delivery.drain_events()
        self.now += 1.0 if self.is_ready() else 0.0001

    def is_stuck(self) -> bool:
        """The uploads have made no progress for some looks, nor has their scheduler had anything to do."""
        self.stuck = self.stuck + 1 if self.uploads.is_stuck() else 0
        return self.stuck > 10


@pytest.fixture
def ended(run: Run, mirror: Folder) -> Iterator[Callable[..., Ended]]:
    """``ended(ear, required=True)``: a run with the uploader of the mirror, whose workers have ended."""
    made: list[Ended] = []

    def end(*ears: Ear, required: bool = False, written: int = 1, limits: UploadLimits = QUICK, **keys: Any) -> Ended:
        one = Ended(**keys)
        one.uploads = Uploads(
            [destination(mirror, required=required)],
            Inventory.of(run.directory),
            context(run),
            limits=limits,
            clock=lambda: one.now,
        )
        one.delivery = Delivery(
            [ear.subscription for ear in ears],
            one.uploads,
            run.directory,
            leave_by=lambda _: one.leave_by,
            meanwhile=one.tick,
            reserve_seconds=5.0,
            clock=lambda: one.now,
        )
        made.append(one)
        run.directory.events.unlink()
        log = EventLog(run.directory.events, run_id="a", attempt=1)
        one.delivery.start(ReporterContext(run_id="a", attempt=1, job=Job(), run_dir="/", last_seq=0))
        for _ in range(written):
            one.delivery.on_events(log.extend([Entry(payload=events.EpochStarted(), step=0, epoch=0)]))
        log.close()
        return one

    yield end
    for one in made:
        one.delivery.abandon()


def unreachable(mirror: Folder) -> None:
    def fail(_: object) -> None:
        raise ConnectionResetError("gone")

    mirror.before = fail


def test_uploads_that_get_on_are_waited_for_however_long_it_takes(ended: Callable[..., Ended], mirror: Folder) -> None:
    runs: list[Ended] = []

    def take(_: object) -> None:
        while not runs or runs[0].now < 80:
            time.sleep(0.001)

    mirror.before = take
    run = ended(required=True, is_ready=lambda: len(runs) and runs[0].uploads.pending().files > 1)
    runs.append(run)
    assert run.delivery.settle(WaitLimits()) is None
    assert run.now >= 80
    (warning,) = [one for one in run.emitted if isinstance(one, events.Warning)]
    assert warning.message.startswith("the training is over; what is left is uploaded: 2 files")


def test_an_outage_is_waited_for_a_while_and_what_is_required_fails_the_run(
    ended: Callable[..., Ended], mirror: Folder
) -> None:
    unreachable(mirror)
    run = ended(required=True)
    run.is_ready = run.is_stuck
    error = run.delivery.settle(WaitLimits(uploads=60.0))
    assert 60 <= run.now <= 63
    assert error is not None
    assert error.type == "NotDelivered"
    assert "folder (somewhere 1.0), which the job requires, has not everything" in error.message
    assert "the uploader folder has not copied everything: " in error.message
    assert error.hint is not None
    assert error.hint.endswith("hostcore upload a --uploader folder")


def test_an_outage_is_waited_for_once(ended: Callable[..., Ended], mirror: Folder) -> None:
    unreachable(mirror)
    run = ended()
    run.is_ready = run.is_stuck
    assert run.delivery.settle(WaitLimits()) is None
    assert 6 <= run.now <= 9
    run.delivery.finish(WaitLimits())
    assert 10 <= run.now < 16, "not as long as without the first wait"


def test_an_uploader_that_does_not_open_is_not_waited_for_as_long_as_one_that_uploads(
    ended: Callable[..., Ended], mirror: Folder
) -> None:
    opening, release = threading.Event(), threading.Event()

    def on_open() -> None:
        opening.set()
        release.wait()

    mirror.on_open = on_open
    run = ended(is_ready=opening.is_set)
    run.delivery.settle(WaitLimits())
    assert QUICK.open_seconds + 6 <= run.now <= QUICK.open_seconds + 12
    release.set()


def test_a_required_reporter_is_waited_for_as_long_as_it_takes_events(ended: Callable[..., Ended]) -> None:
    run: list[Ended] = []

    def take(method: str, what: Any) -> None:
        while method == "report_event" and run[0].now < 10 * what.seq:
            time.sleep(0.001)

    ear = Ear(do=take, required=True)
    run.append(ended(ear, written=8))
    run[0].is_ready = lambda: len(ear.heard) >= run[0].now // 10
    assert run[0].delivery.settle(WaitLimits(required=20.0)) is None
    assert run[0].now >= 80


def test_a_copy_of_the_growing_log_is_nothing_that_a_required_uploader_owes(
    ended: Callable[..., Ended], mirror: Folder, run: Run
) -> None:
    """Only required reporters are waited for by then; they take their events while the copy is under way."""
    grown, copying, settled = threading.Event(), threading.Event(), threading.Event()

    def hold(artifact: Any) -> None:
        if artifact.relative_path == "logs/events.jsonl" and grown.is_set():
            copying.set()
            until(lambda: len(ear.heard) == 2)
            settled.wait(5)  # it ends by itself, should the log have grown before the reporters were waited for

    def grow_once() -> bool:
        found_drained.append(waiting.uploads.is_drained())
        if found_drained[-2:] == [True, True] and not grown.is_set():
            grown.set()
            log = EventLog(run.directory.events, run_id="a", attempt=1)
            waiting.delivery.on_events(log.extend([Entry(payload=events.EpochStarted(), step=1, epoch=0)]))
            log.close()
        return True

    found_drained: list[bool] = []
    mirror.before = hold
    ear = Ear(do=lambda method, _: copying.wait() if method == "report_event" else None, required=True)
    waiting = ended(ear, required=True, limits=attrs.evolve(QUICK, live_seconds=0.0), is_ready=grow_once)
    error = waiting.delivery.settle(WaitLimits(uploads=math.inf, required=math.inf))
    settled.set()
    assert error is None


def test_a_required_reporter_that_takes_nothing_fails_the_run(ended: Callable[..., Ended]) -> None:
    def fail(method: str, _: Any) -> None:
        if method == "report_event":
            raise OSError("no route")

    run = ended(Ear(do=fail, required=True), written=3)
    run.is_ready = lambda: any(isinstance(one, events.ReporterFailed) for one in run.emitted)
    error = run.delivery.settle(WaitLimits(required=20.0))
    assert 20 <= run.now <= 25
    assert error is not None
    assert "the reporter ear (dist 1.0) has not taken 3 events: OSError: no route" in error.message
    assert error.hint is not None
    assert error.hint.endswith("hostcore replay a --reporter ear --pending")


def test_whoever_is_in_a_hurry_cuts_all_waiting_short(ended: Callable[..., Ended], mirror: Folder) -> None:
    gate = Gate(mirror, "")
    gate.close()
    run = ended(leave_by=25.0, is_ready=lambda: mirror.begun)
    run.delivery.settle(WaitLimits())
    assert 20 <= run.now <= 21, "the end and its events get a part of the time"
    run.delivery.finish(WaitLimits())
    assert 25 <= run.now <= 26
    assert mirror.opened[0].is_canceled()
    gate.open()


def test_a_second_signal_ends_all_waiting_at_once(ended: Callable[..., Ended], mirror: Folder) -> None:
    gate = Gate(mirror, "")
    gate.close()
    run = ended(leave_by=-math.inf)
    run.delivery.settle(WaitLimits())
    run.delivery.finish(WaitLimits())
    assert run.now <= 2, "one look each"
    gate.open()


def test_before_a_restart_nothing_is_waited_for_long_even_if_it_gets_on(
    ended: Callable[..., Ended], mirror: Folder
) -> None:
    gate = Gate(mirror, "")
    gate.close()
    run = ended(is_ready=lambda: mirror.begun)
    run.delivery.settle(SHORT_WAIT)
    run.delivery.finish(SHORT_WAIT)
    assert run.now <= 2 * (SHORT_WAIT.at_most + 1)
    gate.open()
