"""Making a worker stop: who may ask, and when it is killed. Time is held by the test."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from hostcore.runs.control import CancelRequest
from hostcore.supervisor.attempt.stopping import ABORT_SECONDS, LEAVE_SECONDS, Limits, Stopping
from hostcore.supervisor.interrupts import Asked, Interrupts

TERM = Asked(status="preempted", reason="received SIGTERM", requested_by="signal:SIGTERM")
CTRL_C = Asked(status="cancelled", reason="interrupted by the user", requested_by="user")
CANCEL = CancelRequest(requested_by="user", reason="wrong data", requested_ms=1)


@attrs.define
class FakeWorker:
    """Stands for the workers of a run, and notes what is done to them; real ones are killed in tests/integration."""

    said: list[Any] = attrs.field(factory=list)
    done: list[str] = attrs.field(factory=list)

    def send(self, kind: str, content: Any) -> None:
        self.said.append((kind, content))

    def kill(self) -> None:
        self.done.append("kill")

    def abort(self) -> None:
        self.done.append("abort")


@attrs.define
class Scene:
    """A worker, who may ask it to stop, and the time."""

    limits: Limits = attrs.field(factory=lambda: Limits(grace=25))
    now: float = 0.0
    cancel: CancelRequest | None = None
    interrupts: Interrupts = attrs.field(factory=Interrupts)
    worker: FakeWorker = attrs.field(factory=FakeWorker)
    stopping: Stopping = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.stopping = Stopping(self.interrupts, self.limits, read_cancel=lambda: self.cancel, clock=lambda: self.now)

    def at(self, now: float, *, submitted: bool = True) -> list[str]:
        self.now = now
        self.stopping.pass_on(self.worker, submitted=submitted)
        return self.worker.done


def test_nobody_asks_and_nothing_happens() -> None:
    scene = Scene()
    assert scene.at(1e6) == []
    assert (scene.worker.said, scene.stopping.asked) == ([], None)


@pytest.mark.parametrize("asked", [TERM, CTRL_C])
def test_a_signal_is_passed_on_once(asked: Asked) -> None:
    scene = Scene()
    scene.interrupts.first = asked
    scene.at(0)
    scene.at(1)
    assert scene.worker.said == [("stop", attrs.asdict(asked))]


def test_a_worker_is_killed_when_the_grace_of_a_scheduler_is_over() -> None:
    scene = Scene()
    scene.interrupts.first, scene.interrupts.hurried = TERM, True
    assert scene.at(100) == []
    assert scene.at(124.9) == []
    assert scene.at(125) == ["kill"]
    assert scene.stopping.killed == "received SIGTERM; killed after 25 s"


def test_a_person_may_wait_for_ever() -> None:
    scene = Scene()
    scene.interrupts.first = CTRL_C
    assert scene.at(0) == []
    assert scene.at(1e6) == []


def test_what_is_asked_for_again_is_forced() -> None:
    scene = Scene()
    scene.interrupts.first = CTRL_C
    scene.at(0)
    scene.interrupts.forced = True
    assert scene.at(1) == ["kill"]


def test_a_cancel_request_is_passed_on_and_has_its_grace() -> None:
    scene = Scene(limits=Limits(grace=10), cancel=CANCEL)
    assert scene.at(0) == []
    asked = {"status": "cancelled", "reason": "wrong data", "requested_by": "user"}
    assert scene.worker.said == [("stop", asked)]
    assert scene.at(10) == ["kill"]


def test_a_cancel_request_by_force_kills() -> None:
    scene = Scene(cancel=attrs.evolve(CANCEL, force=True))
    assert scene.at(0) == ["kill"]
    assert scene.stopping.asked.status == "cancelled"


def test_the_end_of_the_run_time_asks_once_and_is_a_preemption() -> None:
    scene = Scene(limits=Limits(grace=5, max_runtime=60))
    assert scene.at(59.9) == []
    assert scene.worker.said == []
    assert scene.at(60) == []
    ((_, asked),) = scene.worker.said
    assert (asked["status"], asked["requested_by"]) == ("preempted", "host")
    assert "max_runtime_seconds" in asked["reason"]
    assert scene.at(65) == ["kill"]


def test_the_first_request_counts() -> None:
    scene = Scene(limits=Limits(grace=5, max_runtime=60))
    scene.interrupts.first = CTRL_C
    scene.at(0)
    scene.at(61)
    assert scene.stopping.asked == CTRL_C


@pytest.mark.parametrize("ask", [lambda scene: setattr(scene.interrupts, "first", TERM), lambda scene: None])
def test_a_worker_that_is_still_starting_is_killed_at_once(ask: Callable) -> None:
    scene = Scene(cancel=CANCEL)
    ask(scene)
    assert scene.at(0, submitted=False) == ["kill"]
    assert "before the run had started" in scene.stopping.killed


class TestAStalledWorker:
    def test_is_aborted_and_then_killed(self) -> None:
        scene = Scene(limits=Limits(grace=25, stall=60))
        for now, signs in [(0, 1), (59, 1), (60, 2), (119, 2)]:
            scene.now = now
            scene.stopping.watch(scene.worker, signs)
        assert scene.worker.done == []
        scene.now = 120
        scene.stopping.watch(scene.worker, 2)
        assert (scene.worker.done, scene.stopping.stalled) == (["abort"], 60)
        assert scene.at(120 + ABORT_SECONDS) == ["abort", "kill"]

    def test_is_left_alone_without_a_limit(self) -> None:
        scene = Scene(limits=Limits(grace=25, stall=0))
        for now in (0, 1e6):
            scene.now = now
            scene.stopping.watch(scene.worker, 1)
        assert scene.worker.done == []


def test_a_worker_that_has_written_its_end_has_to_leave() -> None:
    scene = Scene()
    scene.stopping.see_off(scene.worker)
    scene.now = LEAVE_SECONDS
    scene.stopping.see_off(scene.worker)
    assert scene.worker.done == ["kill"]
