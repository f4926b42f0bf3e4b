"""What is the same on any number of ranks, and what each rank has of its own."""

import json
from collections.abc import Callable
from typing import Any

import pytest

Runs = dict[int, Any]


@pytest.fixture(scope="module")
def runs(run: Callable[..., Any]) -> Runs:
    """The same job on 1, 2, 3 and 4 ranks."""
    keys = {
        "epochs": 2,
        "checkpoint_every": 3,
        "keep_checkpoints": 9,
        "validate_every": 4,
        "validation": {},
        "test": {"batch_size": 25},
        "callbacks": ["rank_trainer:Told"],
    }
    return {ranks: run(f"same-{ranks}", ranks, hyperparams={"saves_own": True}, **keys) for ranks in (1, 2, 3, 4)}


def test_all_ranks_succeed_and_the_first_one_tells(runs: Runs) -> None:
    for ranks, outcome in runs.items():
        assert outcome.codes == [0] * ranks, outcome.output()
        names = [event["event"] for event in outcome.events()]
        assert [names.count(name) for name in ("metrics", "validation", "test", "run_succeeded")] == [10, 3, 1, 1]
        for rank in range(1, ranks):
            assert [event["event"] for event in outcome.events(rank)] == ["run_succeeded"]


def test_losses_and_weights_are_those_of_one_rank_with_the_whole_batch(runs: Runs) -> None:
    losses, weights = runs[1].losses(), runs[1].notes()["weights"]
    for ranks in (2, 3, 4):
        assert runs[ranks].losses() == pytest.approx(losses, rel=1e-4)
        for rank in range(ranks):
            own = runs[ranks].notes(rank)["weights"]
            assert own.keys() == weights.keys()
            assert _flat(own) == pytest.approx(_flat(weights), rel=1e-3, abs=1e-4)


def test_the_order_of_the_rows_is_the_same(runs: Runs) -> None:
    for ranks in (2, 3, 4):
        for step in range(1, 11):
            assert runs[ranks].rows(step) == runs[1].rows(step)
    digests = {ranks: [outcome.host(step)["cursor"] for step in (3, 6, 9, 10)] for ranks, outcome in runs.items()}
    assert digests[1] == digests[2] == digests[3] == digests[4]


@pytest.mark.parametrize("name", ["validation", "test"])
def test_metrics_of_an_evaluation_are_means_over_all_rows(runs: Runs, name: str) -> None:
    prefix = {"validation": "val", "test": "test"}[name]
    for outcome in runs.values():
        for event in outcome.events(name=name):
            assert event["weight"] == 60
            assert event["metrics"][f"{prefix}/row"] == 29.5  # the mean of 0 to 59, exactly
    losses = {
        ranks: [event["metrics"][f"{prefix}/loss"] for event in outcome.events(name=name)]
        for ranks, outcome in runs.items()
    }
    for ranks in (2, 3, 4):
        assert losses[ranks] == pytest.approx(losses[1], rel=1e-3)


def test_ranks_begin_with_the_same_weights_and_then_draw_numbers_of_their_own(runs: Runs) -> None:
    alone, notes = runs[1].notes(), [runs[4].notes(rank) for rank in range(4)]
    assert {one["first"] for one in notes} == {alone["first"]}
    assert notes[0]["draws"] == alone["draws"]
    assert len({one["draws"]["1"] for one in notes}) == 4


def test_all_ranks_are_told_of_a_checkpoint_after_the_same_step(runs: Runs) -> None:
    for ranks, outcome in runs.items():
        told = outcome.told()
        assert [step for _, step, _ in told] == [3, 6, 9, 10]
        for rank in range(ranks):
            assert outcome.told(rank) == told
            assert outcome.notes(rank)["checkpoints"] == [3, 6, 9, 10]


def test_every_rank_writes_into_the_same_folder_and_the_first_one_stores_all_random_states(runs: Runs) -> None:
    assert runs[3].files(6) == {
        *("state.json", "state.safetensors", "host.json", "host.safetensors"),
        *(f"rank-{rank}.{kind}" for rank in range(3) for kind in ("json", "safetensors")),
        *(f"trainer/rank-{rank}.txt" for rank in range(3)),
    } - ({"host.safetensors"} - runs[3].files(6))
    host = runs[3].host(6)
    assert host["world_size"] == 3
    assert host["trainer_checkpoint"] == {"by": 0}


def test_metrics_that_some_ranks_lack_are_a_warning_and_the_mean_over_the_others_however_many_they_are(
    run: Callable[..., Any],
) -> None:
    """Without a socket to inherit, where the first rank opens the port."""
    keys = {"max_steps": 5, "hyperparams": {"does": "many-metrics:1:3"}, "callbacks": ["rank_trainer:RecordsRank"]}
    outcome = run("many", 2, serves=False, **keys)
    assert outcome.codes == [0, 0], outcome.output()
    recorded = outcome.events(name="metrics")
    assert [(one["metrics"]["mine/rank"], one["metrics"]["mine/alone"]) for one in recorded] == [(0.5, 5.0)] * 5
    assert [one["debug"] for one in recorded] == 5 * [{"rank": 0}]
    third = recorded[2]["metrics"]
    assert [value for name, value in third.items() if name not in recorded[1]["metrics"]] == list(range(100))
    warnings = [one for rank in (0, 1) for one in outcome.events(rank, "warning")]
    assert [(one["code"], one["step"]) for one in warnings] == [("metrics.missing", step) for step in range(1, 6)]
    assert "mine/alone" in warnings[0]["message"]
    assert outcome.events().index(warnings[2]) == outcome.events().index(recorded[2]) - 1


def test_micro_batches_make_up_the_global_batch(run: Callable[..., Any], runs: Runs) -> None:
    """2 ranks, 2 micro-batches of 3 rows."""
    data = {"parquet_paths": [str(run.data)], "batch_size": 3, "shuffle": True}
    outcome = run("accumulated", 2, max_steps=3, dataset=data, global_batch_size=12)
    assert outcome.codes == [0, 0], outcome.output()
    assert {step: outcome.losses()[step] for step in (1, 2, 3)} == pytest.approx(
        {step: runs[1].losses()[step] for step in (1, 2, 3)}, rel=1e-4
    )


def _flat(weights: dict[str, Any]) -> list[float]:
    flat: list[float] = []
    for value in weights.values():
        rows = value if isinstance(value[0], list) else [value]
        flat += [one for row in rows for one in row]
    return flat


@pytest.mark.parametrize("metric_every", [1, 2])
def test_the_metrics_of_a_step_are_there_at_the_next_one_even_for_a_rank_that_asks_alone(
    run: Callable[..., Any], metric_every: int
) -> None:
    outcome = run(
        f"alone-{metric_every}", 2, max_steps=9, metric_every=metric_every, callbacks=["rank_trainer:ReadsAlone"]
    )
    assert outcome.codes == [0, 0], outcome.output()
    losses = outcome.losses()
    for step, value, newest in json.loads((outcome.path / "read.json").read_text()):
        last = step - step % metric_every
        assert (value, newest) == ((losses[last], [[last, losses[last]]]) if last else (None, []))
