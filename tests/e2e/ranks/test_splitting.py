"""Memory runs out on one of two ranks: all of them make the step again, with their batches in the same parts."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from checkout import ROOT

from hostcore.checkpoints.state import read_state

STEPS = 6
PARTS = [3, 3, 3, 1]
#: Rank 1 has memory for three rows, from the third step on.
SHORT = {"fits": 3, "since": 3, "rank": 1}
KEYS = {
    "trainer": "memory_trainer:Trainer",
    "dataset": {"source": "mock", "num_rows": 100, "num_shards": 5, "batch_size": 10, "shuffle": True},
    "max_steps": STEPS,
    "metric_every": 1,
    "checkpoint_every": 4,
}


@pytest.fixture(scope="module")
def ran(folder: Any, finish: Callable) -> Mapping[str, Any]:
    """The commands, beside each other."""
    shutil.copy(ROOT / "tests/integration/runs/memory_trainer.py", folder.path)
    jobs = {
        "whole": {},
        "split": {"hyperparams": SHORT},
        "ddp": {"hyperparams": {**SHORT, "strategy": "ddp"}},
        "none": {"hyperparams": {**SHORT, "fits": -1}},
    }
    started = {name: folder.hostcore("run", folder.job(name, **{**KEYS, **keys})) for name, keys in jobs.items()}
    return {name: finish(process) for name, process in started.items()}


def seen(folder: Any, run_id: str, rank: int) -> Sequence[Any]:
    """The step, and the rows of each part, of each call of ``train_step``."""
    return json.loads((folder.path / f"{run_id}.rank-{rank}.json").read_text())


def losses(folder: Any, run_id: str) -> list[float]:
    return [event["metrics"]["train/loss"] for event in folder.run(run_id).events if event["event"] == "metrics"]


def test_both_ranks_make_the_step_again_in_the_same_parts_with_the_mathematics_of_whole_batches(
    ran: Mapping, folder: Any
) -> None:
    assert ran["split"].code == 0, ran["split"].err
    tried = [[3, [10]], [3, [5, 5]], [3, PARTS]]
    expected = [[1, [10]], [2, [10]], *tried, *([step, PARTS] for step in range(4, STEPS + 1))]
    assert seen(folder, "split", 0) == seen(folder, "split", 1) == expected
    assert ran["whole"].code == 0, ran["whole"].err
    assert losses(folder, "split") == pytest.approx(losses(folder, "whole"), rel=1e-12)
    (event,) = [event for event in folder.run("split").events if event["event"] == "batch_split"]
    assert (event["step"], event["rows"], event["micro_batch_rows"], event["rank"]) == (3, 10, 3, 1)
    assert event["error"].startswith("OutOfMemoryError: CUDA out of memory")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("none", "not even a part of one row fits", id="not even one row fits"),
        pytest.param("ddp", "on several ranks, ddp exchanges values before the update", id="ddp"),
    ],
)
def test_where_parts_are_no_help_the_rank_itself_is_the_cause(ran: Mapping, folder: Any, name: str, words: str) -> None:
    error = folder.run(name).result["error"]
    assert (ran[name].code, error["rank"], error["type"]) == (1, 1, "OutOfMemoryError")
    assert words in error["traceback"]
    if name == "ddp":  # its batches stay whole
        assert [step for step, _ in seen(folder, "ddp", 1)] == [1, 2, 3]


def test_the_size_is_in_the_checkpoint_and_a_run_from_it_begins_so(ran: Mapping, folder: Any, finish: Callable) -> None:
    checkpoint = folder.run("split").path / "checkpoints" / "step-000004"
    assert read_state(checkpoint, "host")["progress"]["micro_batch_rows"] == 3
    job = folder.job("again", **{**KEYS, "hyperparams": SHORT})
    said = finish(folder.hostcore("run", job, "--from", f"{checkpoint}.json"))
    assert said.code == 0, said.err
    assert seen(folder, "again", 0) == seen(folder, "again", 1) == [[5, PARTS], [6, PARTS]]
    assert losses(folder, "again") == losses(folder, "split")[4:]
