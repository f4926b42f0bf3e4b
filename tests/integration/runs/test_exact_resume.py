"""A run that was stopped anywhere and resumed is, bit for bit, the run that was not."""

import itertools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import hostcore

STEPS = 12  # two epochs of six

MOCK = {"source": "mock", "num_rows": 50, "num_shards": 9, "batch_size": 8, "shuffle": True, "shuffle_window": 20}


@attrs.frozen
class Trace:
    """What must not differ."""

    errors: Mapping[int, float]
    rates: Mapping[int, float]
    weights: Mapping[str, torch.Tensor]
    average: tuple[int, float]


def assert_equal(one: Trace, other: Trace) -> None:
    assert one.errors == other.errors
    assert one.rates == other.rates
    assert one.average == other.average
    assert all(torch.equal(one.weights[name], other.weights[name]) for name in other.weights)


@pytest.fixture(scope="module")
def train(here: Path) -> Callable[..., Trace]:
    """``train(preempt_at=[3], …)``: a run of all steps, with a machine taken away in these."""
    numbers = itertools.count()

    def start(*, run_id: str = "", preempt_at: list[int] = [], limits: list[dict] = [{}], **keys: Any) -> Trace:  # noqa: B006
        run_id = run_id or f"run-{next(numbers)}"
        job = {
            "trainer": "exact_trainer:Trainer",
            "callbacks": ["exact_trainer:Average"],
            "dataset": MOCK,
            "epochs": 2,
            "metric_every": 1,
            "reporters": [],
            "device": "cpu",
            "run_id": run_id,
            **keys,
        }
        events: list[Any] = []
        for number, step in enumerate([*preempt_at, 0]):
            import exact_trainer

            exact_trainer.PREEMPT_AT = step
            for limit in limits:
                torch.rand(number + 3)  # another state of the generators than the run had left
                result = hostcore.run({**job, **limit}, on_event=events.append)
            assert result.status == ("preempted" if step else "succeeded"), result
            assert result.step == (step or STEPS)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        metrics = [event for event in events if event.name == "metrics"]
        assert [event.step for event in metrics] == list(range(1, STEPS + 1))
        return Trace(
            {event.step: event.payload.metrics["error"] for event in metrics},
            {event.step: event.payload.metrics["train/lr"] for event in metrics},
            exact_trainer.WEIGHTS[run_id],
            exact_trainer.AVERAGES[run_id],
        )

    return start


@pytest.fixture(scope="module")
def uninterrupted(train: Callable) -> Trace:
    return train()


def test_training_is_the_same_twice(train: Callable, uninterrupted: Trace) -> None:
    assert len(set(uninterrupted.errors.values())) == STEPS
    assert_equal(train(), uninterrupted)


def test_training_is_another_under_another_seed(train: Callable, uninterrupted: Trace) -> None:
    assert train(seed=1).errors != uninterrupted.errors


def test_a_stop_at_any_step_leaves_no_trace(train: Callable, uninterrupted: Trace) -> None:
    for step in range(1, STEPS):
        assert_equal(train(preempt_at=[step]), uninterrupted)


def test_stops_at_all_steps_leave_no_trace(train: Callable, uninterrupted: Trace) -> None:
    assert_equal(train(preempt_at=list(range(1, STEPS))), uninterrupted)


@pytest.mark.parametrize("every", [1, 6])
def test_checkpoints_on_the_way_leave_no_trace(train: Callable, uninterrupted: Trace, every: int) -> None:
    assert_equal(train(checkpoint_every=every, preempt_at=[7]), uninterrupted)


@pytest.mark.parametrize("step", [1, 6, 7])
def test_a_run_that_was_extended_is_the_longer_run(train: Callable, uninterrupted: Trace, step: int) -> None:
    assert_equal(train(limits=[{"max_steps": step}, {"max_steps": STEPS}]), uninterrupted)


@pytest.mark.parametrize("shuffle", [False, True])
def test_parquet_in_several_row_groups_is_taken_up_where_it_was_left(
    train: Callable, tmp_path: Path, shuffle: bool
) -> None:
    columns = {name: pa.array(torch.rand(50).tolist(), pa.float32()) for name in ("x", "y")}
    pq.write_table(pa.table(columns), tmp_path / "d.parquet", row_group_size=7)
    dataset = {"parquet_paths": [str(tmp_path / "d.parquet")], "batch_size": 8, "shuffle": shuffle}
    whole = train(dataset=dataset)
    for step in (5, 6, 11):
        assert_equal(train(dataset=dataset, preempt_at=[step]), whole)


def test_a_run_killed_after_a_checkpoint_repeats_the_steps_behind_it(train: Callable, uninterrupted: Trace) -> None:
    """The run dies in step 9; the newest checkpoint is of step 8."""
    import exact_trainer

    job = {"checkpoint_every": 4, "callbacks": ["exact_trainer:Average"]}
    real = exact_trainer.Trainer.train_step

    def dies(self: Any, prepared_batch: Any, state: Any, ctx: Any) -> Any:
        if ctx.run_state.step == 10:
            raise MemoryError
        return real(self, prepared_batch, state, ctx)

    exact_trainer.Trainer.train_step = dies
    with pytest.raises(AssertionError):
        train(run_id="died", **job)
    exact_trainer.Trainer.train_step = real
    events: list[Any] = []
    again = {"trainer": "exact_trainer:Trainer", "dataset": MOCK, "epochs": 2, "metric_every": 1, "reporters": []}
    result = hostcore.run({**again, **job, "device": "cpu", "run_id": "died"}, on_event=events.append)
    assert (result.status, result.attempt) == ("succeeded", 2)
    errors = {event.step: event.payload.metrics["error"] for event in events if event.name == "metrics"}
    assert errors == {step: uninterrupted.errors[step] for step in range(9, STEPS + 1)}
    assert sys.modules["exact_trainer"].AVERAGES["died"] == uninterrupted.average
