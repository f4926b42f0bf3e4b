"""Metrics that come from other ranks while the training goes on: nothing that reads them can tell."""

from collections.abc import Mapping
from concurrent.futures import Future
from threading import Thread, Timer

import attrs
import pytest

from hostcore.worker import progress as progress_module
from hostcore.worker.metrics import History, remember
from hostcore.worker.progress import Progress
from hostcore_hookspecs.run_state import MetricPoint


def advanced(steps: int = 4) -> Progress:
    progress = Progress(several_ranks=True)
    for _ in range(steps):
        progress.advance()
    return progress


def coming(progress: Progress, value: float) -> None:
    """Metrics of the present step, which come when they are waited for."""
    future: Future[dict[str, float]] = Future()
    progress.expect(future)
    Timer(0.01, future.set_result, [{"train/loss": value}]).start()


def test_who_reads_metrics_or_history_waits_for_those_on_their_way() -> None:
    progress = advanced()
    coming(progress, 2.0)
    progress.advance()
    assert progress.state.metrics == {"train/loss": 2.0}
    coming(progress, 3.0)
    progress.advance()
    assert list(progress.state.history["train/loss"]) == [MetricPoint(4, 2.0), MetricPoint(5, 3.0)]


def test_what_is_remembered_stored_or_expected_later_comes_behind_them() -> None:
    progress = advanced()
    coming(progress, 2.0)
    progress.advance()
    progress.remember({"val/loss": 1.0})
    assert list(progress.state.metrics) == ["train/loss", "val/loss"]
    coming(progress, 3.0)
    progress.advance()
    coming(progress, 4.0)
    assert progress.stored()["metrics"] == {"train/loss": 4.0, "val/loss": 1.0}
    assert progress.stored()["history"]["train/loss"]["steps"].tolist() == [4, 5, 6]


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


def test_what_keeps_them_from_coming_is_raised_where_they_are_waited_for_and_once() -> None:
    progress = advanced()
    future: Future[dict[str, float]] = Future()
    progress.expect(future)
    future.set_exception(RuntimeError("the other rank is gone"))
    with pytest.raises(RuntimeError, match="gone"):
        progress.settle()
    assert progress.state.metrics == {}


def test_at_the_end_of_a_run_that_failed_nothing_waits_for_what_never_comes() -> None:
    progress = advanced()
    progress.expect(Future())
    progress.give_up()
    assert progress.state.metrics == {}
    coming(progress, 2.0)
    progress.give_up()
    assert progress.state.metrics == {"train/loss": 2.0}
    failed: Future[dict[str, float]] = Future()
    failed.set_exception(RuntimeError("the other rank is gone"))
    progress.expect(failed)
    progress.give_up()
    assert progress.state.metrics == {"train/loss": 2.0}


def test_a_plugin_cannot_assign_to_such_a_run_state_either() -> None:
    state = advanced().state
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        state.metrics = {}  # type: ignore[misc]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        state.step = 7  # type: ignore[misc]
    copy = attrs.evolve(state, step=9)
    assert (copy.step, copy.metrics, copy.history) == (9, {}, {})
