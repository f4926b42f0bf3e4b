"""The order of all calls, as golden transcripts: ``transcripts/*.txt``. Each is whole, so nothing else is called.

A line has the finished steps, the epoch and the finished steps in it, and the call. Below the calls are the events.
What a run gave is left in the test's folder; after a change that is meant, compare, and copy it over the transcript.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRANSCRIPTS = Path(__file__).parent / "transcripts"

Play = Callable[..., Any]
Matches = Callable[[str, Any], None]


@pytest.fixture
def matches(tmp_path: Path) -> Matches:
    """``matches("one_step", played)``: the run was as the transcript says, from the first call to the last event."""

    def compare(name: str, played: Any) -> None:
        path = TRANSCRIPTS / f"{name}.txt"
        comments = [line for line in path.read_text().splitlines() if line.startswith("#")]
        found = "\n".join([*comments, *_transcript(played)]) + "\n"
        (tmp_path / path.name).write_text(found)
        assert found == path.read_text(), f"compare {tmp_path / path.name} with {path}"

    return compare


def _transcript(played: Any) -> list[str]:
    events = [event for event in played.events if event.name != "progress"]  # every few seconds
    lines = [f"{_number(event.step)} {_number(event.epoch, 5)}        {event.name}" for event in events]
    return ["", "step epoch batch  call", *played.calls, "", "step epoch        event", *lines]


def _number(value: int | None, width: int = 4) -> str:
    return f"{'-' if value is None else value:>{width}}"


def test_of_two_epochs_with_everything_between_steps(play: Play, data: dict[str, Any], matches: Matches) -> None:
    played = play(
        epochs=2,
        validation=data["validation"],
        test=data["test"],
        validate_every=2,
        checkpoint_every=2,
        sample_every=4,
        samples=[{"prompt": "a dog"}, {"prompt": "a house"}],
    )
    matches("two_epochs", played)


def test_of_a_validation_at_the_end_of_each_epoch(play: Play, data: dict[str, Any], matches: Matches) -> None:
    played = play(trainer="recorder:Transforming", epochs=2, validation=data["validation"], validate_every="epoch")
    matches("validation_by_epoch", played)


def test_of_a_first_batch_that_is_the_last(play: Play, data: dict[str, Any], matches: Matches) -> None:
    evaluated = {"validation": data["validation"], "test": data["test"], "validate_every": 1}
    played = play(max_steps=1, **evaluated, checkpoint_every=1, sample_every=1, samples=[{"prompt": "a dog"}])
    matches("one_step", played)


def test_of_a_resume_in_the_middle_of_an_epoch(play: Play, data: dict[str, Any], matches: Matches) -> None:
    job = {"epochs": 2, "validation": data["validation"], "test": data["test"], "validate_every": 2}
    acts = {"acts": {"train_step at 3": "interrupt"}}
    assert play(**job, hyperparams=acts).result.status == "cancelled"
    matches("resume", play(**job, hyperparams=acts))


def test_of_micro_batches_that_make_up_a_step(play: Play, data: dict[str, Any], matches: Matches) -> None:
    dataset = {**data["dataset"], "batch_size": 1}
    matches("accumulate", play(dataset=dataset, accumulate=2, validation=data["validation"], validate_every=3))


def by_trainer(**acts: str) -> dict[str, Any]:
    """Keys of a job whose trainer does something in a call: ``by_trainer(train_step_at_1="raise")``."""
    return {"hyperparams": {"acts": {call.replace("_at_", " at "): act for call, act in acts.items()}}}


def by_callback(**acts: str) -> dict[str, Any]:
    return {"callbacks": [{"use": "recorder:Callback", **by_trainer(**acts)["hyperparams"]}]}


@pytest.mark.parametrize(
    ("name", "settings", "status", "plugin"),
    [
        ("failure_in_train_step", by_trainer(train_step_at_1="raise"), "failed", "recorder:Trainer"),
        ("failure_in_sanity_check", by_trainer(validate_step_at_0="raise"), "failed", "recorder:Trainer"),
        ("failure_in_validate_step", by_trainer(validate_step_at_2="raise"), "failed", "recorder:Trainer"),
        ("failure_in_callback", by_callback(on_batch_end_at_2="raise"), "failed", "recorder:Callback"),
        ("stop_by_trainer", by_trainer(train_step_at_1="stop"), "succeeded", "recorder:Trainer"),
        ("stop_by_callback", by_callback(on_validation_end_at_2="stop"), "succeeded", "recorder:Callback"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_of_a_failure_and_of_a_stop_that_a_component_asks_for(
    play: Play, data: dict[str, Any], matches: Matches, name: str, settings: Any, status: str, plugin: str
) -> None:
    played = play(validation=data["validation"], test=data["test"], validate_every=2, **settings)
    matches(name, played)
    blamed = played.result.error.plugin if status == "failed" else played.result.requested_by
    assert (played.result.status, blamed) == (status, plugin)


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("cancel_in_sanity_check", "validate_step_at_0"),
        ("cancel_in_training", "train_step_at_1"),
        ("cancel_in_validation", "validate_step_at_2"),
        ("cancel_in_test", "test_step_at_3"),
    ],
)
def test_of_a_cancel(play: Play, data: dict[str, Any], matches: Matches, name: str, at: str) -> None:
    evaluated = {"validation": data["validation"], "test": {**data["test"], "batch_size": 1}, "validate_every": 2}
    samples = {"sample_every": 2, "samples": [{"prompt": "a dog"}]}
    played = play(**evaluated, **samples, **by_trainer(**{at: "interrupt"}))
    matches(name, played)
    assert (played.result.status, played.result.requested_by) == ("cancelled", "user")
