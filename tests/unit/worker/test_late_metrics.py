"""Metrics that come from other ranks while the training goes on: nothing that reads them can tell."""

from collections.abc import Mapping
from concurrent.futures import Future
from threading import Thread, Timer

import attrs
import pytest

from hostcore.worker import progress as progress_module
from hostcore.worker.metrics import History, remember
from hostcore.worker.progress import TrainingProgress


def advanced(steps: int = 4) -> TrainingProgress:
    progress = TrainingProgress(several_ranks=True)
    for _ in range(steps):
        progress.advance()
    return progress


def coming(progress: TrainingProgress, value: float) -> None:
    """Metrics of the present step, which come when they are waited for."""
    future: Future[dict[str, float]] = Future()
    progress.expect(future)
    Timer(0.01, future.set_result, [{"train/loss": value}]).start()


def test_a_thread_that_reads_while_another_one_takes_them_in_sees_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = advanced()
    seen: list[object] = []

    def remember_slowly(history: History, metrics: Mapping[str, float], step: int) -> None:
        reader.start()
        reader.join(0.1)  # it waits, where it does what it should
        remember(history, metrics, step)

    reader = Thread(target=lambda: seen.append(list(progress.state.history)))
    monkeypatch.setattr(progress_module, "remember", remember_slowly)
    coming(progress, 2.0)
    progress.settle()
    reader.join()
    assert seen == [["train/loss"]]


def test_a_plugin_cannot_assign_to_such_a_run_state_either() -> None:
    state = advanced().state
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        state.metrics = {}  # type: ignore[misc]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        state.step = 7  # type: ignore[misc]
    copy = attrs.evolve(state, step=9)
    assert (copy.step, copy.metrics, copy.history) == (9, {}, {})
