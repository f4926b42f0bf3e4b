"""Checkpoints of several ranks: what they hold, and how a run goes on from one on the same or another number."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.checkpoints.find import committed, newest, verify
from hostcore.checkpoints.state import read_state

Run = Callable[..., Any]

EVERY = {"checkpoint_every": 3, "keep_checkpoints": 9}


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_the_same_number_of_ranks_goes_on_bit_for_bit(run: Run, strategy: str) -> None:
    keys = {"hyperparams": {"strategy": strategy, "dropout": 0.4}, "callbacks": ["rank_trainer:Told"], **EVERY}
    whole = run(f"whole-{strategy}", 2, max_steps=8, **keys)
    run(f"parts-{strategy}", 2, max_steps=5, **keys)
    rest = run(f"parts-{strategy}", 2, max_steps=8, **keys)

    assert [whole.codes, rest.codes] == [[0, 0], [0, 0]], whole.output() + rest.output()
    (resumed,) = rest.events(name="run_resumed")
    assert resumed["path"] == "checkpoints/step-000005"
    assert rest.losses() == {step: whole.losses()[step] for step in (6, 7, 8)}
    for rank in (0, 1):
        assert rest.notes(rank)["weights"] == whole.notes(rank)["weights"]
        assert rest.notes(rank)["draws"] == {str(step): whole.notes(rank)["draws"][str(step)] for step in (6, 7, 8)}
        assert ["loaded", 1] in rest.told(rank)  # on_checkpoint_saved of step 3; that of step 5 came later
    assert rest.host(8)["cursor"] == whole.host(8)["cursor"]


@pytest.fixture(scope="module")
def alone(run: Run) -> Any:
    """The same job on one rank."""
    return run("alone", 1, max_steps=8, **EVERY)


def first_half(run: Run, run_id: str, strategy: str, ranks: int = 2) -> None:
    """Make five steps of a run."""
    outcome = run(run_id, ranks, max_steps=5, hyperparams={"strategy": strategy}, **EVERY)
    assert outcome.codes == [0] * ranks, outcome.output()


@pytest.mark.parametrize(
    ("of", "ranks", "before", "after"),
    [(2, 1, "fsdp2", "ddp"), (2, 4, "ddp", "ddp"), (2, 3, "fsdp2", "fsdp2"), (1, 2, "ddp", "fsdp2")],
)
def test_another_number_of_ranks_goes_on_with_the_same_rows_and_says_what_begins_anew(
    run: Run, alone: Any, of: int, ranks: int, before: str, after: str
) -> None:
    run_id = f"{of}-to-{ranks}"
    first_half(run, run_id, before, of)
    rest = run(run_id, ranks, max_steps=8, hyperparams={"strategy": after}, **EVERY)

    assert rest.codes == [0] * ranks, rest.output()
    assert [rest.rows(step) for step in (6, 7, 8)] == [alone.rows(step) for step in (6, 7, 8)]
    assert rest.losses() == pytest.approx({step: alone.losses()[step] for step in (6, 7, 8)}, rel=1e-3)
    assert rest.host(8)["cursor"] == alone.host(8)["cursor"]
    (warning,) = [one for rank in range(ranks) for one in rest.events(rank, "warning")]
    assert warning["code"] == "resume.ranks"


def test_a_checkpoint_by_time_is_written_by_all_ranks_and_resumed_bit_for_bit(run: Run) -> None:
    """Each step takes 0.3 s. The final checkpoint of the first part is removed."""
    keys = {"checkpoint_every": "1s", "max_steps": 12}
    whole = run("time-whole", 2, hyperparams={"strategy": "ddp"}, **keys)
    run("time-parts", 2, hyperparams={"strategy": "ddp", "seconds": [0.3, 0.3]}, **{**keys, "max_steps": 9})
    by_time = [one.step for one in committed(run.folder / "time-parts" / "checkpoints") if not one.final]
    assert by_time
    (run.folder / "time-parts" / "checkpoints" / "step-000009.json").unlink()
    rest = run("time-parts", 2, hyperparams={"strategy": "ddp", "seconds": [0.3, 0.3]}, **keys)

    assert rest.codes == [0, 0], rest.output()
    (resumed,) = rest.events(name="run_resumed")
    assert resumed["path"] == f"checkpoints/step-{max(by_time):06}"
    assert rest.losses() == {step: whole.losses()[step] for step in range(max(by_time) + 1, 13)}


def test_a_spread_model_is_stored_in_parts_that_verify_and_make_up_the_whole(run: Run) -> None:
    first_half(run, "stored", "fsdp2")
    folder = run.folder / "stored" / "checkpoints"
    search = newest(folder)

    assert search.found is not None and not search.skipped
    files = {file.path for file in search.found.record.files}
    assert {f"state.shards/shard-0000{rank}-model-00001-of-00001.safetensors" for rank in (1, 2)} < files
    assert not [file for file in files if file.endswith((".pt", ".distcp", ".metadata"))]
    for record in committed(folder):
        verify(folder, record)
    state = read_state(search.found.folder, "state")
    notes = run("stored", 2, max_steps=5, hyperparams={"strategy": "fsdp2"}, **EVERY).notes()
    assert {name: value.tolist() for name, value in state["model"].items()} == notes["weights"]
    assert state["optimizer"]["state"]["first.weight"]["exp_avg"].shape == (5, 2)


def test_the_plain_state_dicts_of_a_spread_model_come_back_on_the_same_number_of_ranks(run: Run) -> None:
    keys = {"trainer": "rank_trainer:Plain", "hyperparams": {"strategy": "fsdp2"}, **EVERY}
    whole = run("plain-whole", 2, max_steps=6, **keys)
    run("plain", 2, max_steps=3, **keys)
    rest = run("plain", 2, max_steps=6, **keys)
    assert rest.codes == [0, 0], rest.output()
    assert rest.losses() == {step: whole.losses()[step] for step in (4, 5, 6)}


@pytest.mark.parametrize(
    ("run_id", "keys"),
    [
        ("obstructed", {"callbacks": [{"use": "rank_trainer:Obstruct", "at": 3, "until": 5}, "rank_trainer:Told"]}),
        ("blocked", {"hyperparams": {"strategy": "fsdp2", "does": "block:0:3"}}),  # where the parts should be
    ],
)
def test_a_checkpoint_that_the_first_rank_cannot_begin_or_write_its_part_of_is_a_warning_on_all(
    run: Run, run_id: str, keys: dict[str, Any]
) -> None:
    outcome = run(run_id, 2, max_steps=7, **keys, **EVERY)
    assert outcome.codes == [0, 0], outcome.output()
    (warning,) = [one for rank in (0, 1) for one in outcome.events(rank, "warning")]
    assert warning["code"] == "checkpoint.not_written"
    assert outcome.notes(0)["checkpoints"] == outcome.notes(1)["checkpoints"] == [6, 7]
    assert [one.step for one in committed(run.folder / run_id / "checkpoints")] == [6, 7]


def test_a_last_checkpoint_that_cannot_be_written_fails_all_ranks_and_none_hangs(run: Run) -> None:
    callbacks = [{"use": "rank_trainer:Obstruct", "at": 4, "until": 99}]
    outcome = run("lost", 2, max_steps=4, callbacks=callbacks)
    assert (outcome.codes, outcome.hung) == ([1, 1], []), outcome.output()
    assert outcome.error(0)["type"] == "CheckpointError"
    assert outcome.error(1)["type"] == "DistributedError"
    assert outcome.error(0)["message"] in outcome.error(1)["message"]


def test_a_rank_that_fails_while_parts_are_written_lets_them_be_committed(run: Run) -> None:
    keys = {"hyperparams": {"strategy": "fsdp2", "does": "raise:1:4"}, **EVERY}
    outcome = run("late", 2, max_steps=9, **keys)
    assert (outcome.codes, outcome.hung) == ([1, 1], []), outcome.output()
    assert outcome.error(1)["type"] == "ValueError"
    assert [one.step for one in committed(run.folder / "late" / "checkpoints")] == [3]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_while_parts_are_written_leaves_a_whole_checkpoint_or_none(run: Run, rank: int) -> None:
    keys = {"checkpoint_every": 2, "keep_checkpoints": 9}
    whole = run(f"lives-{rank}", 2, max_steps=5, hyperparams={"strategy": "fsdp2"}, **keys)
    outcome = run(f"dies-{rank}", 2, max_steps=5, hyperparams={"strategy": "fsdp2", "does": f"die:{rank}:5"}, **keys)
    assert outcome.hung == []
    assert outcome.codes[rank] == 7

    rest = run(f"dies-{rank}", 2, max_steps=5, hyperparams={"strategy": "fsdp2"}, **keys)
    assert rest.codes == [0, 0], rest.output()
    assert rest.events(name="run_resumed")[0]["step"] in (2, 4)
    assert rest.losses()[5] == whole.losses()[5]


def test_a_damaged_part_is_found_and_the_checkpoint_before_is_taken(run: Run) -> None:
    first_half(run, "damaged", "fsdp2")
    (part,) = Path(run.folder, "damaged/checkpoints/step-000005/state.shards").glob("shard-00002*")
    part.write_bytes(part.read_bytes()[:-1] + b"\1")
    rest = run("damaged", 2, max_steps=6, hyperparams={"strategy": "fsdp2"}, **EVERY)
    assert rest.codes == [0, 0], rest.output()
    assert [one["path"] for one in rest.events(name="checkpoint_skipped")] == ["checkpoints/step-000005"]
    assert [one["step"] for one in rest.events(name="run_resumed")] == [3]
