"""Making a worker stop: who may ask, and when it is killed. Time is held by the test."""

from typing import Any

import attrs

from hostcore.runs.control import CancelRequest
from hostcore.supervisor.attempt.stopping import Limits, Stopping
from hostcore.supervisor.interrupts import Asked, Interrupts

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

    def at(self, now: float, *, released: bool = True) -> list[str]:
        self.now = now
        self.stopping.pass_on(self.worker, released=released)
        return self.worker.done


def test_a_person_may_wait_for_ever() -> None:
    scene = Scene()
    scene.interrupts.first = CTRL_C
    assert scene.at(0) == []
    assert scene.at(1e6) == []


def test_a_cancel_request_is_passed_on_and_has_its_grace() -> None:
    scene = Scene(limits=Limits(grace=10), cancel=CANCEL)
    assert scene.at(0) == []
    asked = {"status": "cancelled", "reason": "wrong data", "requested_by": "user"}
    assert scene.worker.said == [("stop", asked)]
    assert scene.at(10) == ["kill"]


def test_the_first_request_counts() -> None:
    scene = Scene(limits=Limits(grace=5, max_runtime=60))
    scene.interrupts.first = CTRL_C
    scene.at(0)
    scene.at(61)
    assert scene.stopping.asked == CTRL_C


def test_a_worker_without_signs_of_life_is_left_alone_without_a_limit() -> None:
    scene = Scene(limits=Limits(grace=25, stall=0))
    for now in (0, 1e6):
        scene.now = now
        scene.stopping.watch(scene.worker, 1)
    assert scene.worker.done == []
