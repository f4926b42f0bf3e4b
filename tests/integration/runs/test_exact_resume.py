"""A run that was stopped anywhere and resumed is, bit for bit, the run that was not."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import hostcore

STEPS = 18  # three epochs of six

MOCK = {"source": "mock", "num_rows": 50, "num_shards": 9, "batch_size": 8, "shuffle": True, "shuffle_window": 20}


@attrs.frozen
class Trace:
    """What must not differ."""

    errors: Mapping[int, float]
    rates: Mapping[int, float]
    #: Rows by step.
    samples: Mapping[int, Sequence[float]]
    weights: Mapping[str, torch.Tensor]
    average: tuple[int, float]


def assert_equal(one: Trace, other: Trace) -> None:
    assert one.errors == other.errors
    assert one.rates == other.rates
    assert one.samples == other.samples
    assert one.average == other.average
    assert all(torch.equal(one.weights[name], other.weights[name]) for name in other.weights)


def job(run_id: str, **keys: Any) -> dict[str, Any]:
    return {
        "trainer": "exact_trainer:Trainer",
        "callbacks": ["exact_trainer:Average"],
        "dataset": MOCK,
        "epochs": 3,
        "metric_every": 1,
        "terminal": False,
        "device": "cpu",
        "run_id": run_id,
        **keys,
    }


@pytest.fixture(scope="module")
def trainer(here: Path) -> ModuleType:
    """The module ``exact_trainer``, as jobs of this process import it."""
    import exact_trainer

    return exact_trainer


@pytest.fixture(scope="module")
def train(trainer: ModuleType) -> Callable[..., Trace]:
    """``train(preempt_at=[3], …)``: a run of all steps, with a machine taken away in these."""
    numbers = itertools.count()

    def start(preempt_at: Sequence[int] = (), limits: Sequence[Mapping[str, Any]] = ({},), **keys: Any) -> Trace:
        run_id = f"run-{next(numbers)}"
        events: list[Any] = []
        for number, step in enumerate([*preempt_at, 0]):
            trainer.PREEMPT_AT = step
            for limit in limits:
                torch.rand(number + 3)  # another state of the generators than the run had left
                result = hostcore.run(job(run_id, **{**keys, **limit}), on_event=events.append)
            assert result.status == ("preempted" if step else "succeeded"), result
            assert result.step == (step or STEPS)
            assert result.epoch == (result.step - 1) // 6, "that of its last step, also at an epoch's end"
        assert [event.epoch for event in events if event.name == "epoch_started"] == [0, 1, 2]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        metrics = [event for event in events if event.name == "metrics"]
        assert [event.step for event in metrics] == list(range(1, STEPS + 1))
        return Trace(
            {event.step: event.payload.metrics["error"] for event in metrics},
            {event.step: event.payload.metrics["train/lr"] for event in metrics},
            trainer.SAMPLES[run_id],
            trainer.WEIGHTS[run_id],
            trainer.AVERAGES[run_id],
        )

    return start


@pytest.fixture(scope="module")
def uninterrupted(train: Callable) -> Trace:
    return train()


def test_training_is_the_same_twice(train: Callable, uninterrupted: Trace) -> None:
    assert len(set(uninterrupted.errors.values())) == STEPS
    epochs = [[uninterrupted.samples[epoch * 6 + step] for step in range(1, 7)] for epoch in range(3)]
    assert all(len(set(itertools.chain(*epoch))) == 48 for epoch in epochs), "no row twice in an epoch"
    assert epochs[0] != epochs[1] != epochs[2]
    assert_equal(train(), uninterrupted)


def test_training_is_another_under_another_seed(train: Callable, uninterrupted: Trace) -> None:
    assert train(seed=1).errors != uninterrupted.errors


def test_stops_around_the_ends_of_an_epoch_and_the_run_leave_no_trace(train: Callable, uninterrupted: Trace) -> None:
    assert_equal(train(preempt_at=[5, 17]), uninterrupted)
    assert_equal(train(preempt_at=[6]), uninterrupted)


def test_stops_at_all_steps_leave_no_trace(train: Callable, uninterrupted: Trace) -> None:
    assert_equal(train(preempt_at=list(range(1, STEPS))), uninterrupted)


@pytest.mark.parametrize(("every", "stops"), [(1, [7]), (6, [1, 7])], ids=str)
def test_checkpoints_on_the_way_leave_no_trace(
    train: Callable, uninterrupted: Trace, every: int, stops: list[int]
) -> None:
    assert_equal(train(checkpoint_every=every, preempt_at=stops), uninterrupted)


def test_a_run_that_was_extended_is_the_longer_run(train: Callable, uninterrupted: Trace) -> None:
    assert_equal(train(limits=[{"max_steps": steps} for steps in (1, 6, 7, STEPS)]), uninterrupted)


@pytest.mark.parametrize("shuffle", [False, True])
def test_parquet_in_several_row_groups_is_taken_up_where_it_was_left(
    train: Callable, tmp_path: Path, shuffle: bool
) -> None:
    columns = {name: pa.array(torch.rand(50).tolist(), pa.float32()) for name in ("x", "y")}
    pq.write_table(pa.table(columns), tmp_path / "d.parquet", row_group_size=7)
    dataset = {"parquet_paths": [str(tmp_path / "d.parquet")], "batch_size": 8, "shuffle": shuffle}
    assert_equal(train(dataset=dataset, preempt_at=[5, 6, 11]), train(dataset=dataset))


@pytest.mark.parametrize(("every", "begins_at"), [(4, {8, 12}), ("epoch", {12}), ("1s", set(range(6, 16)))])
def test_a_run_that_died_repeats_the_steps_behind_its_newest_checkpoint(
    trainer: ModuleType, uninterrupted: Trace, every: int | str, begins_at: set[int]
) -> None:
    """The trainer dies in step 16. In step 5 it takes longer than the time between two checkpoints."""
    events: list[Any] = []
    run_id = f"died-{every}"
    with trainer.dying(16, rest=(5, 1.1 if every == "1s" else 0.0)):
        assert hostcore.run(job(run_id, checkpoint_every=every), on_event=events.append).status == "failed"
    assert hostcore.run(job(run_id, checkpoint_every=every), on_event=events.append).step == STEPS
    (resumed,) = [event for event in events if event.name == "run_resumed"]
    behind = int(resumed.payload.path.rpartition("-")[2])
    assert behind in begins_at
    metrics = [event for event in events if event.name == "metrics"]
    assert [event.step for event in metrics] == [*range(1, 16), *range(behind + 1, STEPS + 1)]
    assert {event.step: event.payload.metrics["error"] for event in metrics} == uninterrupted.errors
    assert trainer.AVERAGES[run_id] == uninterrupted.average
    assert all(torch.equal(value, uninterrupted.weights[name]) for name, value in trainer.WEIGHTS[run_id].items())
