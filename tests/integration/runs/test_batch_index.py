"""The split and the number of a batch, as trainers and callbacks find them in the context."""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hostcore

MOCK = {"source": "mock", "batch_size": 4}
Seen = list[tuple[str, str, int]]


@pytest.fixture(scope="module")
def trainer(here: Path) -> Iterator[ModuleType]:
    """The module ``indexed_trainer``, as jobs of this process import it."""
    import indexed_trainer

    yield indexed_trainer
    del sys.modules["indexed_trainer"]


@pytest.fixture(scope="module")
def train(trainer: ModuleType) -> Callable[..., tuple[Seen, Mapping[int, float]]]:
    """``train([3, 0], …)``: what a run that is preempted at step 3 and then goes on has seen, and its losses."""
    numbers = itertools.count()

    def start(stops: list[int], *, accumulate: int = 1, workers: int = 0) -> tuple[Seen, Mapping[int, float]]:
        losses: dict[int, float] = {}

        def note(event: Any) -> None:
            if event.name == "metrics":
                losses[event.step] = event.payload.metrics["train/loss"]

        trainer.SEEN.clear()
        faults = [f"sigterm@step={step}" for step in stops]
        job = {
            "run_id": f"indexed-{accumulate}-{workers}-{next(numbers)}",
            "trainer": "indexed_trainer:Trainer",
            "callbacks": ["indexed_trainer:Notes", *([{"use": "chaos", "faults": faults}] if stops else [])],
            "dataset": {**MOCK, "num_rows": 50, "num_shards": 3, "shuffle": True, "workers": workers},
            "validation": {**MOCK, "num_rows": 10, "workers": workers},
            "test": {**MOCK, "num_rows": 5, "workers": workers},
            "accumulate": accumulate,
            "epochs": 2,
            "validate_every": 5,
            "metric_every": 1,
            "terminal": False,
            "device": "cpu",
        }
        for step in [*stops, 0]:
            result = hostcore.run(job, on_event=note)
            assert result.status == ("preempted" if step else "succeeded"), result
        return list(trainer.SEEN), losses

    return start


def of_training(index: int, *, accumulate: int) -> Seen:
    """A step, by the number of its first batch."""
    last = index + accumulate - 1
    prepared = [("prepare_batch", "train", one) for one in range(index, last + 1)]
    return [*prepared, ("train_step", "train", last), ("on_batch_end", "train", last)]


def of_evaluation(split: str, step: str, batches: int) -> Seen:
    return [(method, split, index) for index in range(batches) for method in ("prepare_batch", step)]


@pytest.mark.parametrize(("accumulate", "steps_per_epoch"), [(1, 12), (2, 6)])
def test_batches_are_counted_in_each_epoch_and_in_each_validation(
    train: Callable, accumulate: int, steps_per_epoch: int
) -> None:
    expected = of_evaluation("validation", "validate_step", 2)  # before the first step
    for step in range(1, 2 * steps_per_epoch + 1):
        index = (step - 1) % steps_per_epoch * accumulate
        expected += of_training(index, accumulate=accumulate)
        if step % 5 == 0 or step == 2 * steps_per_epoch:
            expected += of_evaluation("validation", "validate_step", 3)
            expected += [("on_validation_end", "train", index + accumulate - 1)]
    expected += of_evaluation("test", "test_step", 2)
    assert train([], accumulate=accumulate)[0] == expected


def test_a_run_that_goes_on_sees_the_same_numbers_in_whatever_process(train: Callable) -> None:
    whole = train([], accumulate=2)
    assert train([3, 8], accumulate=2) == whole
    assert train([4], accumulate=2, workers=1) == whole
