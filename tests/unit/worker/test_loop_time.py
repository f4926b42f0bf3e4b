"""What the loop does with time: waiting for data apart from steps, and signs of life. The clock is the test's."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

from hostcore.events.writer import RankLog
from hostcore.worker.feed.feed import Cursor, MockFeed
from hostcore.worker.feed.order import Share
from hostcore.worker.feed.stream import MockStream
from hostcore.worker.loop import train
from hostcore.worker.metrics import Meter
from hostcore.worker.progress import TrainingProgress
from hostcore.worker.ranks.one import NoMeeting, OneRank
from hostcore.worker.requests import Requests
from hostcore.worker.stop import StopSwitch
from hostcore.worker.training import LoopCalls, Training, nothing
from hostcore_hookspecs import Job, StepContext, StepControl, StepResult


@attrs.define
class Clock:
    """Moves when it is told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Unsaved:
    """Saves nothing."""

    has_news = False

    def __init__(self, progress: TrainingProgress) -> None:
        self._progress = progress
        self.saved: list[int] = []

    def rehearse(self) -> None:
        pass

    def save(self, *, final: bool) -> None:
        self.saved.append(self._progress.state.step)

    def finish(self) -> None:
        pass


@attrs.frozen(kw_only=True)
class SlowStream(MockStream):
    clock: Clock
    wait: float

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            self.clock.now += self.wait
            yield batch


@attrs.frozen(kw_only=True)
class SlowFeed(MockFeed):
    """Batches that take their time."""

    clock: Clock
    wait: float

    def stream(self, cursor: Cursor, **_: Any) -> SlowStream:
        return SlowStream(
            mock_batches=self.mock_batches,
            epoch=cursor.epoch,
            start=cursor.rows,
            stop=len(self.mock_batches),
            share=Share(rank=0, world_size=1),
            clock=self.clock,
            wait=self.wait,
        )


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[dict], Unsaved, list[int]]]:
    """``trained(steps=10, step=1.0, wait=0.5)``: a run whose steps and data take so many seconds.

    Returns its events, what it saved, and the steps to which a checkpoint was announced.
    """

    def run(
        *,
        steps: int,
        step: float,
        wait: float = 0.0,
        backoff: float = 0.0,
        metric_every: int = 0,
        checkpoint_seconds: float = 0.0,
    ) -> tuple[list[dict], Unsaved, list[int]]:
        clock, progress = Clock(), TrainingProgress()
        saver, announced = Unsaved(progress), list[int]()
        control = StepControl(backoff_seconds=backoff) if backoff else None
        stop = StopSwitch()
        monkeypatch.setattr(stop, "sleep", lambda seconds: setattr(clock, "now", clock.now + seconds))

        def train_step(batch: Any, state: Any, ctx: Any) -> StepResult:
            clock.now += step
            if ctx.checkpoint_due:
                announced.append(ctx.run_state.step + 1)
            return StepResult(metrics={"loss": 1.0}, control=control)

        log = RankLog(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl")
        training = Training(
            job=Job(metric_every=metric_every),
            ctx=StepContext(run_state=progress.state),
            state=None,
            hooks=LoopCalls(prepare_batch=lambda raw_batch, state, ctx: raw_batch, train_step=train_step),
            feed=SlowFeed(mock_batches=[None] * 3, clock=clock, wait=wait),
            progress=progress,
            total_steps=steps,
            saver=saver,
            stop=stop,
            requests=Requests(
                stop,
                is_stopping=lambda: False,
                asker=lambda: "nobody",
                ranks=OneRank(),
                emit=print,
                author_of=str,
                run_state=progress.state,
                metric_every=metric_every,
                checkpoint_seconds=checkpoint_seconds,
                clock=clock,
            ),
            ranks=OneRank(),
            meeting=NoMeeting(),
            emit=lambda payload: log.write(payload, step=progress.state.step, epoch=progress.state.epoch),
            meter=Meter(clock),
        )
        train(training, nothing)
        return [orjson.loads(line) for line in log.path.read_bytes().splitlines()], saver, announced

    return run


@pytest.mark.parametrize(("metric_every", "saved"), [(1, [11, 22, 30]), (0, [15, 29, 30])])
def test_a_checkpoint_by_time_is_announced_to_a_step_and_written_behind_it(
    trained: Callable, metric_every: int, saved: list[int]
) -> None:
    """The clock is looked at where metrics are recorded, and at signs of life."""
    _, saver, announced = trained(steps=30, step=1.0, metric_every=metric_every, checkpoint_seconds=10.0)
    assert list(dict.fromkeys(saver.saved)) == saved
    assert announced == saved[:-1]


def test_waiting_for_data_is_told_apart_from_steps(trained: Callable) -> None:
    metrics = [line for line in trained(steps=8, step=1.0, wait=0.25, metric_every=4)[0] if line["event"] == "metrics"]
    for line in metrics:
        assert line["step_seconds"] == pytest.approx(1.25)
        assert line["data_wait_seconds"] == pytest.approx(0.25)
        assert line["samples_per_second"] == pytest.approx(0.8)


def test_a_sign_of_life_comes_every_few_seconds_without_metrics(trained: Callable) -> None:
    """Also where the epochs are shorter: here they have three steps."""
    signs = [line for line in trained(steps=30, step=1.0)[0] if line["event"] == "progress"]
    assert [line["step"] for line in signs] == [7, 14, 21, 28]
    assert all(line["samples_per_second"] == pytest.approx(1.0) for line in signs)
    events = {line["event"] for line in trained(steps=30, step=1.0, metric_every=4)[0]}
    assert events == {"epoch_started", "metrics"}, "which are signs of life themselves"
    # A backoff is full of them, so that nobody takes it for a stall.
    backoff = [line for line in trained(steps=2, step=1.0, backoff=30.0)[0] if line["event"] == "progress"]
    assert len([line for line in backoff if line["step"] == 1]) >= 30 / 5
