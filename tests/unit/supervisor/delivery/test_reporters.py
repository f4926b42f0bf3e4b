"""Every reporter is told every event in order, at its own pace, whatever the others do."""

import re
import shutil
import threading
from collections.abc import Callable
from typing import Any

import attrs
import orjson
import pytest
from desk import IMPATIENT, Clock, Desk, Ear, events_of
from uploading import until

from hostcore.supervisor.delivery.calls import Intervals, QuickRetries
from hostcore_hookspecs.errors import FatalError, TransientError
from hostcore_hookspecs.events import ReporterFailed, Warning

#: An outage is probed after an hour.
SLOW = attrs.evolve(IMPATIENT, intervals=Intervals(first_seconds=3600, most_seconds=3600))
#: A call that fails is made again twice at once.
RETRYING = attrs.evolve(IMPATIENT, quick=QuickRetries())


def raising(
    *errors: BaseException | None, then: BaseException | None = None, method: str = "report_event"
) -> Callable[[str, Any], None]:
    """Raises these, one for each call of the method; then always the same, or nothing."""
    left = list(errors)

    def do(called: str, what: Any) -> None:
        if called == method and (error := left.pop(0) if left else then) is not None:
            raise error

    return do


class Gate:
    """Holds a reporter in a method, or at an event, until it is opened."""

    def __init__(self, method: str = "report_event", *, seq: int | None = None) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self._method, self._seq = method, seq

    def __call__(self, method: str, what: Any) -> None:
        if method == self._method and self._seq in (None, getattr(what, "seq", 0)):
            self.entered.set()
            self.opened.wait()


class TestAReporter:
    def test_is_told_everything_in_order_between_open_and_close_by_one_thread(self, desk: Desk) -> None:
        ear = Ear()
        deliveries = desk.deliver(ear)
        desk.write(count=500)
        desk.finish(deliveries)
        assert ear.calls == [("open", 0), *(("report_event", seq) for seq in range(1, 501)), ("close", 0)]
        assert len(ear.threads) == 1
        assert threading.get_ident() not in ear.threads
        assert (desk.news, deliveries.left, deliveries.taken) == ([], [], 500)

    def test_is_told_of_a_line_when_it_is_whole_however_long_it_is(self, desk: Desk) -> None:
        ear = Ear()
        deliveries = desk.deliver(ear)
        desk.write(Warning(code="x", message="y" * 300_000), Warning(code="x", message="z"))
        whole = desk.directory.events.read_bytes()
        second = whole.splitlines(keepends=True)[1].replace(b'"seq":2', b'"seq":3')
        with desk.directory.events.open("ab", buffering=0) as log:
            log.write(second[:-30])
            deliveries.announce()
            until(lambda: ear.heard == [1, 2])
            log.write(second[-30:])
        desk.finish(deliveries)
        assert ear.heard == [1, 2, 3]

    def test_begins_with_the_history_with_this_attempt_or_where_the_attempt_before_ended(self, desk: Desk) -> None:
        desk.write(count=3)
        desk.finish(desk.deliver(Ear("known")))
        desk.write()
        new, live, known = Ear("new"), Ear("live", live_only=True), Ear("known")
        deliveries = desk.deliver(new, live, known)
        desk.write()
        desk.finish(deliveries)
        assert (new.heard, live.heard, known.heard) == ([1, 2, 3, 4, 5], [5], [4, 5])
        assert desk.news == []

    def test_is_not_told_of_a_line_that_is_no_event_and_goes_on_behind_it(self, desk: Desk) -> None:
        ear = Ear()
        deliveries = desk.deliver(ear)
        desk.write()
        with desk.directory.events.open("ab") as log:
            log.write(b'{"event":"from_the_future"}\n')
        desk.write()
        desk.finish(deliveries)
        assert ear.heard == [1, 2]
        (warning,) = events_of(desk.news, Warning)
        assert (warning.code, "ear (dist 1.0) is not told of it" in warning.message) == ("events.corrupt", True)

    def test_of_an_attempt_that_was_abandoned_goes_on_behind_what_it_took(self, desk: Desk) -> None:
        gate, clock = Gate(seq=3), Clock()
        first = desk.deliver(Ear(do=gate), clock=clock)
        desk.write(count=5)
        assert gate.entered.wait(120)
        clock.pass_hang_time()
        first.abandon()
        assert first.left == [
            "the reporter ear (dist 1.0) has not taken 3 events: there was no time left to tell it everything"
        ]
        assert orjson.loads(desk.cursor("ear").read_bytes())["seq"] == 2
        again = Ear()
        desk.finish(desk.deliver(again))
        assert again.heard == [3, 4, 5]
        gate.opened.set()

    def test_waits_for_the_thread_of_an_earlier_attempt_that_is_still_in_it(self, desk: Desk) -> None:
        gate, clock = Gate(seq=3), Clock()
        ear = Ear(do=gate)
        first = desk.deliver(ear, clock=clock)
        desk.write(count=3)
        assert gate.entered.wait(120)
        clock.pass_hang_time()
        first.abandon()
        second = desk.deliver(ear, clock=clock)
        until(lambda: clock.pass_hang_time() or desk.hear(second))
        assert desk.news[0].message == "has not returned from a call of an earlier attempt for 30 s"
        second.abandon()
        assert orjson.loads(desk.cursor("ear").read_bytes())["seq"] == 2, "it never had its turn"
        third = desk.deliver(ear, clock=clock)
        begun = [("open", 0), ("report_event", 1), ("report_event", 2)]
        assert ear.calls == begun
        gate.opened.set()
        desk.finish(third)
        assert ear.calls[:5] == [*begun, ("report_event", 3), ("close", 0)]
        assert ear.calls[-2:] == [("open", 0), ("close", 0)]


class TestAFailure:
    @pytest.mark.parametrize(
        "error",
        [ValueError("no"), SystemExit(1), KeyboardInterrupt(), MemoryError(), StopIteration(), GeneratorExit()],
        ids=repr,
    )
    def test_of_any_kind_is_told_once_in_an_outage_and_tried_again_until_it_is_over(
        self, desk: Desk, error: BaseException
    ) -> None:
        ear = Ear(do=raising(None, error, error, error, None, OSError("second")))
        deliveries = desk.deliver(ear)
        desk.write(count=4)
        desk.finish(deliveries)
        assert ear.heard == [1, 2, 3, 4]
        failed, recovered, second, last = desk.news
        assert failed.reporter == "ear (dist 1.0)"
        assert failed.message.startswith(type(error).__name__)
        assert recovered.code == last.code == "reporter.recovered"
        assert re.fullmatch(
            r"ear \(dist 1\.0\) works again after \d+ s; events to catch up with: [1-4]", recovered.message
        )
        assert second.message == "OSError: second"
        assert deliveries.left == []

    def test_has_the_cursor_written_since_the_process_may_not_live(self, desk: Desk) -> None:
        ear = Ear(do=raising(None, None, then=OSError("down")))
        deliveries = desk.deliver(ear, limits=attrs.evolve(IMPATIENT, save_seconds=3600.0))
        desk.write(count=3)
        until(lambda: desk.hear(deliveries))
        assert orjson.loads(desk.cursor("ear").read_bytes())["seq"] == 2

    def test_that_a_quick_retry_mends_is_not_told(self, desk: Desk) -> None:
        boom = ValueError("no")
        ear = Ear(do=raising(*[boom, None, None] * 4))
        deliveries = desk.deliver(ear, limits=RETRYING)
        desk.write(count=6)
        desk.finish(deliveries)
        assert (ear.heard, desk.news) == ([1, 2, 3, 4, 5, 6], [])

    def test_in_open_is_tried_again_before_anything_is_told(self, desk: Desk) -> None:
        ear = Ear(do=raising(*[OSError("no route")] * 3, method="open"))
        deliveries = desk.deliver(ear)
        desk.write(count=2)
        desk.finish(deliveries)
        assert ear.calls == [("open", 0), ("report_event", 1), ("report_event", 2), ("close", 0)]
        assert [type(one) for one in desk.news] == [ReporterFailed, Warning]

    @pytest.mark.parametrize(
        ("method", "error", "told", "left"),
        [
            ("open", FatalError("revoked"), "FatalError: revoked", "has not taken 2 events: FatalError: revoked"),
            ("close", OSError("cannot flush"), "OSError: cannot flush", "failed: OSError: cannot flush"),
        ],
    )
    def test_for_good_in_open_or_any_in_close_is_told_once_and_leaves_what_is_behind_the_cursor(
        self, desk: Desk, method: str, error: Exception, told: str, left: str
    ) -> None:
        desk.write(count=10)
        desk.finish(desk.deliver(Ear()))
        deliveries = desk.deliver(Ear(do=raising(then=error, method=method)))
        desk.write(count=2)
        desk.finish(deliveries)
        (failed,) = desk.news
        assert failed.message.startswith(told)
        assert deliveries.left == [f"the reporter ear (dist 1.0) {left}"]

    def test_that_is_fatal_ends_the_reporter_for_this_attempt_alone(self, desk: Desk) -> None:
        broken, ear = Ear("broken", do=raising(None, FatalError("the token was revoked"))), Ear()
        deliveries = desk.deliver(broken, ear)
        desk.write(count=3)
        desk.finish(deliveries)
        assert broken.calls == [("open", 0), ("report_event", 1), ("close", 0)]
        assert ear.heard == [1, 2, 3]
        (failed,) = desk.news
        assert "the token was revoked; it gets no more events in this attempt" in failed.message
        assert "has not taken 2 events: FatalError: the token was revoked" in deliveries.left[0]
        again = Ear("broken")
        desk.finish(desk.deliver(again))
        assert again.heard == [2, 3]

    def test_is_tried_again_at_once_when_somebody_waits(self, desk: Desk) -> None:
        ear = Ear(do=raising(OSError("no route")))
        deliveries = desk.deliver(ear, limits=SLOW, clock=Clock())
        desk.write()
        until(lambda: desk.hear(deliveries))
        deliveries.hurry()
        until(lambda: ear.heard == [1])

    def test_that_asks_for_time_gets_it(self, desk: Desk) -> None:
        clock, calls = Clock(), []
        busy = [TransientError("too many requests", retry_after_seconds=3600)]

        def do(method: str, what: Any) -> None:
            if method == "report_event":
                calls.append(clock.now)
                if busy:
                    raise busy.pop()

        deliveries = desk.deliver(Ear(do=do), limits=RETRYING, clock=clock)
        desk.write()
        until(lambda: desk.hear(deliveries))
        deliveries.finish()  # which does not make it try before its time
        clock.now += 3599
        for _ in range(3):
            deliveries.announce()
        assert len(calls) == 1
        clock.now += 2
        desk.finish(deliveries)
        assert calls == [1000.0, 4601.0]


class TestAHang:
    def test_delays_nobody_else_is_told_once_and_ends_when_the_call_returns(self, desk: Desk) -> None:
        gate, clock = Gate(), Clock()
        stuck, ear = Ear("stuck", do=gate), Ear()
        deliveries = desk.deliver(stuck, ear, clock=clock)
        desk.write(count=50)
        until(lambda: deliveries.taken == 50)
        assert gate.entered.wait(120)
        assert ear.heard == list(range(1, 51))
        assert desk.hear(deliveries) == []
        for _ in range(3):
            clock.pass_hang_time()
            desk.hear(deliveries)
        assert desk.news == [
            ReporterFailed(reporter="stuck (dist 1.0)", message="has not returned from report_event for 30 s")
        ]
        gate.opened.set()
        desk.finish(deliveries)
        assert stuck.heard == list(range(1, 51))
        assert [one.code for one in events_of(desk.news, Warning)] == ["reporter.recovered"]
        assert deliveries.left == []

    def test_that_ends_in_an_error_is_one_outage_and_no_reason_to_keep_the_next_quiet(self, desk: Desk) -> None:
        gate, clock = Gate(seq=1), Clock()
        errors = {1: TimeoutError("after a long time"), 3: OSError("down")}

        def do(method: str, what: Any) -> None:
            gate(method, what)
            if method == "report_event" and what.seq in errors:
                raise errors.pop(what.seq)

        deliveries = desk.deliver(Ear(do=do), clock=clock)
        desk.write(count=3)
        assert gate.entered.wait(120)
        clock.pass_hang_time()
        desk.hear(deliveries)
        gate.opened.set()
        until(lambda: deliveries.hurry(last=True) or deliveries.is_finished())
        desk.hear(deliveries)
        told = [one.message for one in events_of(desk.news, ReporterFailed)]
        assert told == ["has not returned from report_event for 30 s", "OSError: down"]
        assert [one.code for one in events_of(desk.news, Warning)] == ["reporter.recovered"] * 2

    def test_is_one_of_a_single_try(self, desk: Desk) -> None:
        """Two tries that take 20 s each are no call that takes more than 30."""
        clock, errors = Clock(), [OSError("after 20 s")]

        def do(method: str, what: Any) -> None:
            if method == "report_event":
                clock.now += 20
                for one in desk.started[0].subscribers:
                    one.poll()
                if errors:
                    raise errors.pop()

        ear = Ear(do=do)
        deliveries = desk.deliver(ear, limits=RETRYING, clock=clock)
        desk.write()
        desk.finish(deliveries)
        assert (ear.heard, desk.news) == ([1], [])

    def test_of_the_words_of_an_error_delays_nobody_else(self, desk: Desk) -> None:
        gate = Gate()

        class Silent(Exception):
            def __str__(self) -> str:
                gate("report_event", None)
                return "at last"

        ear = Ear()
        deliveries = desk.deliver(Ear("stuck", do=raising(Silent())), ear)
        desk.write(count=3)
        assert gate.entered.wait(120)
        until(lambda: ear.heard == [1, 2, 3])
        assert desk.hear(deliveries) == []  # polls the one that is stuck as well
        gate.opened.set()
        desk.finish(deliveries)
        (told,) = events_of(desk.news, ReporterFailed)
        assert told.message.endswith("Silent: at last")

    @pytest.mark.parametrize("method", ["open", "report_event", "close"])
    def test_in_any_method_does_not_keep_the_run_from_ending(self, desk: Desk, method: str) -> None:
        gate, clock = Gate(method), Clock()
        deliveries = desk.deliver(Ear(do=gate), clock=clock)
        desk.write()
        deliveries.finish()
        assert gate.entered.wait(120)
        clock.pass_hang_time()
        assert len(deliveries.news()) == 1
        deliveries.abandon()
        assert not deliveries.is_finished()
        (left,) = deliveries.left
        assert left.endswith(f": has not returned from {method} for 30 s")
        gate.opened.set()
        until(deliveries.is_finished)


def test_the_folder_of_a_run_that_was_withdrawn_is_left_alone(desk: Desk) -> None:
    deliveries = desk.deliver(Ear(), limits=attrs.evolve(IMPATIENT, save_seconds=3600.0))
    desk.write()
    shutil.rmtree(desk.directory.path)
    desk.finish(deliveries)
    assert not desk.directory.path.exists()
