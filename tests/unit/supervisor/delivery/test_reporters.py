"""Every reporter is told every event in order, at its own pace, whatever the others do."""

import re
import threading
from collections.abc import Callable
from typing import Any

import attrs
import orjson
import pytest
from desk import IMPATIENT, Clock, Desk, Ear, events_of, eventually

from hostcore.events.merger import EventLog
from hostcore.runs.result import Left
from hostcore.supervisor.delivery.calls import Intervals, QuickRetries
from hostcore_hookspecs.errors import FatalError, TransientError
from hostcore_hookspecs.events import ReporterFailed, Warning


def raising(*errors: BaseException | None, then: BaseException | None = None) -> Callable[[str, Any], None]:
    """Raises these, one for each call of ``report_event``; then always the same, or nothing."""
    left = list(errors)

    def do(method: str, what: Any) -> None:
        if method == "report_event" and (error := left.pop(0) if left else then) is not None:
            raise error

    return do


class Gate:
    """Holds a reporter in a method until it is opened."""

    def __init__(self, method: str = "report_event") -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self._method = method

    def __call__(self, method: str, what: Any) -> None:
        if method == self._method:
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

    def test_is_told_while_the_log_grows(self, desk: Desk) -> None:
        ear = Ear()
        desk.deliver(ear)
        for seq in range(1, 6):
            desk.write()
            eventually(lambda seq=seq: ear.heard[-1:] == [seq])

    def test_gets_a_line_when_it_is_whole(self, desk: Desk) -> None:
        ear = Ear()
        deliveries = desk.deliver(ear)
        desk.write(count=2)
        whole = desk.directory.events.read_bytes()
        second = whole.splitlines(keepends=True)[1].replace(b'"seq":2', b'"seq":3')
        with desk.directory.events.open("ab", buffering=0) as log:
            log.write(second[:-30])
            deliveries.announce()
            eventually(lambda: ear.heard == [1, 2])
            log.write(second[-30:])
        desk.finish(deliveries)
        assert ear.heard == [1, 2, 3]

    def test_is_told_a_line_longer_than_what_is_read_at_once(self, desk: Desk) -> None:
        ear = Ear()
        deliveries = desk.deliver(ear)
        desk.write(Warning(code="x", message="y" * 300_000), Warning(code="x", message="z"))
        desk.finish(deliveries)
        assert ear.heard == [1, 2]

    def test_that_is_new_in_a_resumed_run_is_told_its_history(self, desk: Desk) -> None:
        desk.write(count=3)
        ear = Ear()
        deliveries = desk.deliver(ear)
        desk.write()
        desk.finish(deliveries)
        assert ear.heard == [1, 2, 3, 4]

    def test_that_shows_what_happens_now_is_told_of_this_attempt_alone(self, desk: Desk) -> None:
        desk.write(count=3)
        ear = Ear(live_only=True)
        deliveries = desk.deliver(ear)
        desk.write()
        desk.finish(deliveries)
        assert ear.heard == [4]

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

    def test_goes_on_where_the_attempt_before_ended(self, desk: Desk) -> None:
        desk.write(count=3)
        desk.finish(desk.deliver(Ear()))
        desk.write(count=2)
        again = Ear()
        desk.finish(desk.deliver(again))
        assert again.heard == [4, 5]
        assert desk.news == []

    def test_of_an_attempt_that_was_abandoned_goes_on_behind_what_it_took(self, desk: Desk) -> None:
        gate = Gate()
        held = Ear(do=lambda method, what: gate(method, what) if getattr(what, "seq", 0) == 3 else None)
        clock = Clock()
        first = desk.deliver(held, clock=clock)
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
        gate, clock = Gate(), Clock()
        ear = Ear(do=gate)
        first = desk.deliver(ear, clock=clock)
        desk.write()
        assert gate.entered.wait(120)
        clock.pass_hang_time()
        first.abandon()
        second = desk.deliver(ear, clock=clock)
        eventually(lambda: clock.pass_hang_time() or desk.hear(second), "it is told as hanging")
        assert desk.news[0].message == "has not returned from a call of an earlier attempt for 30 s"
        assert ear.calls == [("open", 0)]
        gate.opened.set()
        desk.finish(second)
        assert ear.calls == [("open", 0), ("report_event", 1), ("close", 0), ("open", 0), ("close", 0)]

    def test_that_never_had_its_turn_keeps_its_cursor(self, desk: Desk) -> None:
        gate, clock = Gate(), Clock()
        ear = Ear(do=lambda method, what: gate(method, what) if getattr(what, "seq", 0) == 3 else None)
        first = desk.deliver(ear, clock=clock)
        desk.write(count=3)
        assert gate.entered.wait(120)
        clock.pass_hang_time()
        first.abandon()
        second = desk.deliver(ear, clock=clock)
        eventually(lambda: clock.pass_hang_time() or desk.hear(second), "it is reported as hanging")
        second.abandon()
        assert orjson.loads(desk.cursor("ear").read_bytes())["seq"] == 2
        gate.opened.set()


class TestAFailure:
    @pytest.mark.parametrize(
        "error",
        [ValueError("no"), SystemExit(1), KeyboardInterrupt(), MemoryError(), StopIteration(), GeneratorExit()],
        ids=repr,
    )
    def test_of_any_kind_is_told_once_and_tried_again_until_it_is_over(self, desk: Desk, error: BaseException) -> None:
        ear = Ear(do=raising(None, error, error, error))
        deliveries = desk.deliver(ear)
        desk.write(count=4)
        desk.finish(deliveries)
        assert ear.heard == [1, 2, 3, 4]
        failed, recovered = desk.news
        assert failed.reporter == "ear (dist 1.0)"
        assert failed.message.startswith(type(error).__name__)
        assert recovered.code == "reporter.recovered"
        assert re.fullmatch(
            r"ear \(dist 1\.0\) works again after \d+ s; events to catch up with: [1-4]", recovered.message
        )
        assert deliveries.left == []

    def test_of_a_second_outage_is_told_too(self, desk: Desk) -> None:
        ear = Ear(do=raising(None, OSError("first"), None, None, OSError("second")))
        deliveries = desk.deliver(ear)
        desk.write(count=4)
        desk.finish(deliveries)
        assert ear.heard == [1, 2, 3, 4]
        told = [one.message for one in events_of(desk.news, ReporterFailed)]
        assert told == ["OSError: first", "OSError: second"]
        assert [one.code for one in events_of(desk.news, Warning)] == ["reporter.recovered"] * 2

    def test_has_the_cursor_written_since_the_process_may_not_live(self, desk: Desk) -> None:
        ear = Ear(do=raising(None, None, then=OSError("down")))
        deliveries = desk.deliver(ear, limits=attrs.evolve(IMPATIENT, save_seconds=3600.0))
        desk.write(count=3)
        eventually(lambda: desk.hear(deliveries))
        assert orjson.loads(desk.cursor("ear").read_bytes())["seq"] == 2

    def test_that_a_quick_retry_mends_is_not_told(self, desk: Desk) -> None:
        boom = ValueError("no")
        ear = Ear(do=raising(*[boom, None, None] * 4))
        deliveries = desk.deliver(ear, limits=attrs.evolve(IMPATIENT, quick=QuickRetries()))
        desk.write(count=6)
        desk.finish(deliveries)
        assert (ear.heard, desk.news) == ([1, 2, 3, 4, 5, 6], [])

    def test_for_good_delays_nobody_else_and_is_told_once(self, desk: Desk) -> None:
        broken, ear = Ear("broken", do=raising(then=ConnectionError("down"))), Ear()
        deliveries = desk.deliver(broken, ear)
        desk.write(count=100)
        eventually(lambda: ear.heard == list(range(1, 101)))
        eventually(lambda: desk.hear(deliveries))
        deliveries.finish()
        eventually(lambda: ear.calls[-1] == ("close", 0))
        assert not deliveries.is_finished()
        deliveries.abandon()
        assert [one.message for one in desk.hear(deliveries)] == ["ConnectionError: down"]
        (broken_one, _) = deliveries.subscribers
        assert broken_one.source.left == Left(
            message="the reporter broken (dist 1.0) has not taken 100 events: ConnectionError: down",
            command=["hostcore", "replay", "--reporter", "broken", "--pending"],
        )

    def test_in_open_is_tried_again_before_anything_is_told(self, desk: Desk) -> None:
        refused = [OSError("no route")] * 3

        def do(method: str, what: Any) -> None:
            if method == "open" and refused:
                raise refused.pop()

        ear = Ear(do=do)
        deliveries = desk.deliver(ear)
        desk.write(count=2)
        desk.finish(deliveries)
        assert ear.calls == [("open", 0), ("report_event", 1), ("report_event", 2), ("close", 0)]
        assert [type(one) for one in desk.news] == [ReporterFailed, Warning]

    def test_in_open_for_good_leaves_what_is_behind_the_cursor(self, desk: Desk) -> None:
        desk.write(count=10)
        desk.finish(desk.deliver(Ear()))

        def do(method: str, what: Any) -> None:
            raise FatalError("the token was revoked")

        deliveries = desk.deliver(Ear(do=do))
        desk.write(count=2)
        desk.finish(deliveries)
        assert "has not taken 2 events: FatalError: the token was revoked" in deliveries.left[0]

    def test_in_close_is_told_and_not_tried_again(self, desk: Desk) -> None:
        def do(method: str, what: Any) -> None:
            if method == "close":
                raise OSError("cannot flush")

        deliveries = desk.deliver(Ear(do=do))
        desk.write()
        desk.finish(deliveries)
        assert [one.message for one in desk.news] == ["OSError: cannot flush"]
        assert deliveries.left == ["the reporter ear (dist 1.0) failed: OSError: cannot flush"]

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
        clock = Clock()
        slow = attrs.evolve(IMPATIENT, intervals=Intervals(first_seconds=3600, most_seconds=3600))
        ear = Ear(do=raising(OSError("no route")))
        deliveries = desk.deliver(ear, limits=slow, clock=clock)
        desk.write()
        eventually(lambda: desk.hear(deliveries))
        deliveries.hurry()
        eventually(lambda: ear.heard == [1])

    def test_that_asks_for_time_gets_it(self, desk: Desk) -> None:
        clock = Clock()
        busy = TransientError("too many requests", retry_after_seconds=3600)
        calls = []

        def do(method: str, what: Any) -> None:
            if method == "report_event":
                calls.append(clock.now)
                if len(calls) == 1:
                    raise busy

        deliveries = desk.deliver(Ear(do=do), limits=attrs.evolve(IMPATIENT, quick=QuickRetries()), clock=clock)
        desk.write()
        eventually(lambda: desk.hear(deliveries))
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
        eventually(lambda: deliveries.taken == 50)
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

    def test_is_no_reason_to_keep_the_next_outage_quiet(self, desk: Desk) -> None:
        gate, clock = Gate(), Clock()
        down = [OSError("down")]

        def do(method: str, what: Any) -> None:
            if method == "report_event" and what.seq == 1:
                gate(method, what)
            elif method == "report_event" and what.seq == 3 and down:
                raise down.pop()

        deliveries = desk.deliver(Ear(do=do), clock=clock)
        desk.write(count=3)
        assert gate.entered.wait(120)
        clock.pass_hang_time()
        desk.hear(deliveries)
        gate.opened.set()
        eventually(lambda: deliveries.hurry(last=True) or deliveries.is_finished())
        desk.hear(deliveries)
        told = [one.message for one in events_of(desk.news, ReporterFailed)]
        assert told == ["has not returned from report_event for 30 s", "OSError: down"]
        assert [one.code for one in events_of(desk.news, Warning)] == ["reporter.recovered"] * 2

    def test_is_one_of_a_single_try(self, desk: Desk) -> None:
        """Two tries that take 20 s each are no call that takes more than 30."""
        clock = Clock()
        errors = [OSError("after 20 s")]

        def do(method: str, what: Any) -> None:
            if method == "report_event":
                clock.now += 20
                for one in desk.started[0].subscribers:
                    one.poll()
                if errors:
                    raise errors.pop()

        ear = Ear(do=do)
        deliveries = desk.deliver(ear, limits=attrs.evolve(IMPATIENT, quick=QuickRetries()), clock=clock)
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
        eventually(lambda: ear.heard == [1, 2, 3])
        assert desk.hear(deliveries) == []  # polls the one that is stuck as well
        gate.opened.set()
        desk.finish(deliveries)
        (told,) = events_of(desk.news, ReporterFailed)
        assert told.message.endswith("Silent: at last")

    def test_that_ends_in_an_error_is_the_same_outage(self, desk: Desk) -> None:
        gate, clock = Gate(), Clock()

        def do(method: str, what: Any) -> None:
            if method == "report_event" and not gate.opened.is_set():
                gate(method, what)
                raise TimeoutError("after a long time")

        deliveries = desk.deliver(Ear(do=do), clock=clock)
        desk.write()
        assert gate.entered.wait(120)
        clock.pass_hang_time()
        desk.hear(deliveries)
        gate.opened.set()
        deliveries.finish()
        eventually(lambda: deliveries.hurry() or deliveries.is_finished())
        desk.hear(deliveries)
        assert [type(one) for one in desk.news] == [ReporterFailed, Warning]

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
        eventually(deliveries.is_finished)


class TestAReporterIsBehind:
    def test_until_it_has_taken_everything(self, desk: Desk) -> None:
        gate = Gate()
        ear = Ear(do=gate)
        deliveries = desk.deliver(ear)
        assert deliveries.behind == []
        desk.write(count=3)
        assert deliveries.behind == ["ear (dist 1.0)"]
        gate.opened.set()
        eventually(lambda: deliveries.behind == [])
        assert ear.heard == [1, 2, 3]

    @pytest.mark.parametrize("count", [0, 1])
    def test_for_good_when_it_has_given_up(self, desk: Desk, count: int) -> None:
        def do(method: str, _: Any) -> None:
            if method == ("report_event" if count else "open"):
                raise FatalError("no")

        deliveries = desk.deliver(Ear(do=do))
        if count:
            desk.write(count=count)
        desk.finish(deliveries)
        assert deliveries.behind == ["ear (dist 1.0)"]


class TestDeliveries:
    def test_leave_the_folder_of_a_run_that_was_withdrawn_alone(self, desk: Desk) -> None:
        import shutil

        deliveries = desk.deliver(Ear(), limits=attrs.evolve(IMPATIENT, save_seconds=3600.0))
        desk.write()
        shutil.rmtree(desk.directory.path)
        desk.finish(deliveries)
        assert not desk.directory.path.exists()


def test_attempts_of_a_whole_run_tell_every_event_once(desk: Desk) -> None:
    """Over three attempts with a reporter that fails now and then, nothing is lost or out of order."""
    heard: list[int] = []
    for attempt in (1, 2, 3):
        desk.log.close()
        desk.log = EventLog(desk.directory.events, run_id="r", attempt=attempt)
        ear = Ear(do=raising(*[None, ValueError("x")] * 20))
        deliveries = desk.deliver(ear)
        for _ in range(40):
            desk.write()
        desk.finish(deliveries)
        heard += ear.heard
    assert heard == list(range(1, 121))
