import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore_builtin_plugins.callbacks.csv_metrics import CsvMetrics
from hostcore_hookspecs import FatalError

Start = Callable[..., tuple[CsvMetrics, Any]]


@pytest.fixture
def start(course: Callable[..., Any], tmp_path: Path) -> Start:
    """``start()``: a callback of an attempt, whose steps before are in ``earlier``."""

    def make(*, earlier: tuple[CsvMetrics, Any] | None = None, at: int = 0, **keys: Any) -> tuple[CsvMetrics, Any]:
        run = course(**{"run_dir": str(tmp_path), "metric_every": 2, **keys})
        callback = CsvMetrics()
        if earlier is not None:
            before, state = earlier[0].callback_state(), earlier[1].run_state
            history = {name: [one for one in points if one.step <= at] for name, points in state.history.items()}
            callback.load_callback_state(before)
            run.to_step(at, history=history)
        callback.on_train_begin(run.run_state, run.ctx)
        return callback, run

    return make


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[str], list[str]]:
    return lambda split: (tmp_path / "csv-metrics" / f"{split}.csv").read_text().splitlines()


def train(callback: CsvMetrics, run: Any, until: int, **metrics: float) -> None:
    """Make steps: every second one is recorded, after ``on_batch_end`` as the host does it."""
    while run.run_state.step < until:
        callback.on_batch_begin(run.run_state)
        step = run.run_state.step + 1
        run.to_step(step)
        if step % 2 == 0:
            run.record(step, **{"train__loss": 1 / step, **metrics})


def validate(callback: CsvMetrics, run: Any, **metrics: float) -> None:
    callback.on_validation_begin(run.run_state)
    run.record(run.run_state.step, **metrics)
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    callback.on_validation_end(named, run.run_state)


def test_the_last_step_is_written_when_the_run_ends_fails_or_is_tested(
    start: Start, lines: Callable[[str], list[str]]
) -> None:
    for number, end in enumerate(["on_train_end", "on_exception", "on_test_begin", "on_epoch_end"], start=1):
        callback, run = start()
        train(callback, run, 2 * number)
        getattr(callback, end)(run.run_state)
        assert lines("train")[-1].startswith(f"{2 * number},")


def test_a_row_is_written_once_however_many_hooks_follow(start: Start, lines: Callable[[str], list[str]]) -> None:
    callback, run = start()
    train(callback, run, 2)
    for hook in ("on_validation_begin", "on_epoch_end", "on_batch_begin", "on_test_begin", "on_train_end"):
        getattr(callback, hook)(run.run_state)
    run.to_step(4)  # the trainer asked not to record it
    callback.on_batch_begin(run.run_state)
    assert lines("train") == ["step,train/loss", "2,0.5"]


def test_a_new_metric_is_a_new_column_and_older_rows_are_empty_there(
    start: Start, lines: Callable[[str], list[str]], tmp_path: Path
) -> None:
    callback, run = start()
    train(callback, run, 4)
    train(callback, run, 7, **{'loss, "smooth"': 9.0})
    run.record(8, **{'loss, "smooth"': 8.0})
    callback.on_train_end(run.run_state)
    rows = list(csv.reader(lines("train")))
    assert rows[0] == ["step", "train/loss", 'loss, "smooth"']
    assert rows[1:] == [["2", "0.5", ""], ["4", "0.25", ""], ["6", str(1 / 6), "9.0"], ["8", "", "8.0"]]
    assert [path.name for path in (tmp_path / "csv-metrics").iterdir()] == ["train.csv"]


def test_numbers_come_back_exactly_and_what_is_not_finite_is_a_word(
    start: Start, lines: Callable[[str], list[str]]
) -> None:
    values = {"third": 1 / 3, "tiny": 5e-324, "none": math.nan, "up": math.inf, "down": -math.inf}
    train(*start(), 3, **values)
    (row,) = csv.DictReader(lines("train"))
    assert (float(row["third"]), float(row["tiny"])) == (1 / 3, 5e-324)
    assert [row[name] for name in ("none", "up", "down")] == ["nan", "inf", "-inf"]


def test_a_run_that_starts_again_at_step_0_starts_with_empty_files(
    start: Start, lines: Callable[[str], list[str]]
) -> None:
    train(*start(), 5)
    start()
    assert lines("train") == ["step,train/loss"]


def test_what_a_killed_process_had_not_written_comes_from_the_history(
    start: Start, lines: Callable[[str], list[str]]
) -> None:
    first = start()
    train(*first, 2)
    validate(*first, val__loss=3.0)
    run = first[1]
    run.record(4, train__loss=0.25, val__loss=2.0)  # recorded and in the checkpoint of step 4, and no hook came after
    start(earlier=first, at=4)
    assert lines("train") == ["step,train/loss", "2,0.5", "4,0.25"]
    assert lines("validation") == ["step,val/loss", "2,3.0", "4,2.0"]


@pytest.mark.parametrize("torn", ["6,0.1", "6", "6,0.16,0.3,9\n", "hello\n"])
def test_half_a_row_of_a_dead_writer_is_dropped(
    start: Start, lines: Callable[[str], list[str]], tmp_path: Path, torn: str
) -> None:
    first = start()
    train(*first, 5)
    with (tmp_path / "csv-metrics" / "train.csv").open("a") as file:
        file.write(torn)
    start(earlier=first, at=6)
    assert lines("train") == ["step,train/loss", "2,0.5", "4,0.25"]


def test_a_test_that_is_repeated_at_its_step_takes_the_place_of_the_first(
    start: Start, lines: Callable[[str], list[str]]
) -> None:
    callback, run = start()
    train(callback, run, 4)
    for loss in (2.0, 1.5):
        callback.on_test_end({"test/loss": loss}, run.run_state)
    assert lines("test") == ["step,test/loss", "4,1.5"]


def test_no_other_rank_than_the_first_writes(start: Start, tmp_path: Path) -> None:
    callback, run = start(rank=1)
    train(callback, run, 5)
    validate(callback, run, val__loss=1.0)
    callback.on_train_end(run.run_state)
    assert list(tmp_path.iterdir()) == []
    assert callback.callback_state() == {"validation": ["val/loss"], "test": []}


def test_a_file_that_cannot_be_written_is_an_error_that_names_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "csv-metrics").write_text("in the way")
    callback, run = start()
    with pytest.raises(FatalError, match="csv-metrics cannot write its file") as caught:
        train(callback, run, 5)
    assert caught.value.file.startswith(str(tmp_path / "csv-metrics"))
    assert "leave csv-metrics out" in caught.value.hint
