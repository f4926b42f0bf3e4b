"""The order of all calls at the ends of runs and epochs, of two stops or failures, and without data.

Whole runs are in ``integration/hooks/test_transcripts.py``.
"""

from collections.abc import Callable
from typing import Any

import pytest

WATCHED = {"callbacks": ["recording_trainer:Watch"]}
THREE = {"mock_batches": ["a", "b", "c"]}


def lines(transcript: str) -> list[str]:
    return [line.strip() for line in transcript.strip().splitlines()]


def test_of_a_resume_at_the_end_of_an_epoch(run: Callable) -> None:
    """The checkpoint was written before ``on_epoch_end``, with the callbacks as they were then: so it comes again."""
    run(**THREE, **WATCHED, max_steps=3)
    outcome = run(**THREE, **WATCHED, max_steps=4)
    assert outcome.calls == lines("""
        setup
        configure
        load_state_dict 3
        load_checkpoint step 3
        load_callback_state 3
        on_train_begin 3
        on_epoch_end 0
        on_epoch_begin 1
        prepare_batch a
        on_batch_begin a 3
        train_step 4
        on_batch_end 4
        state_dict
        callback_state 4
        state_dict
        save_checkpoint 4 final
        callback_state 4
        on_checkpoint_saved 4 final
        on_train_end 4
        teardown
    """)


def test_of_a_stop_at_the_end_of_an_epoch(run: Callable) -> None:
    outcome = run(**THREE, **WATCHED, max_steps=6, hyperparams={"stop_at": [3]})
    assert outcome.calls[-9:] == lines("""
        on_batch_end 3
        on_epoch_end 0
        on_stop_requested it is enough by recording_trainer:Trainer
        state_dict
        save_checkpoint 3 final
        callback_state 3
        on_checkpoint_saved 3 final
        on_train_end 3
        teardown
    """)
    last = run(**THREE, **WATCHED, epochs=1, hyperparams={"stop_at": [3]}, run_id="last")  # as that of a whole run
    assert last.calls[-5:] == lines("""
        on_checkpoint_saved 3 final
        on_epoch_end 0
        on_stop_requested it is enough by recording_trainer:Trainer
        on_train_end 3
        teardown
    """)
    assert (last.result.status, last.result.reason) == ("succeeded", None)


def test_of_two_stops_tells_of_both_and_ends_once(run: Callable) -> None:
    outcome = run(**THREE, callbacks=["recording_trainer:Watch", "recording_trainer:StopTwice"], max_steps=6)
    assert [call for call in outcome.calls if "stop" in call] == [
        "on_stop_requested first by recording_trainer:StopTwice",
        "on_stop_requested second by recording_trainer:StopTwice",
    ]
    assert (outcome.result.step, outcome.result.reason) == (1, "first")
    assert [event.payload.reason for event in outcome.of("stop_requested")] == ["first", "second"]


def test_of_a_failure_in_teardown_fails_the_run_though_its_last_checkpoint_stays(run: Callable) -> None:
    outcome = run(**THREE, **WATCHED, hyperparams={"raise_in": "teardown"})
    assert outcome.calls[-3:] == ["on_train_end 3", "teardown", "on_exception ValueError"]
    assert outcome.result.error.message == "teardown went wrong"
    assert outcome.result.final_checkpoint == "checkpoints/step-000003"
    assert [event.name for event in outcome.events if event.name.startswith("run_")][-1] == "run_failed"


@pytest.mark.parametrize(
    "settings",
    [
        {"hyperparams": {"raise_at": 2, "raise_in": "teardown"}},
        {"hyperparams": {"raise_at": 2}, "callbacks": [{"use": "recording_trainer:Watch", "raise_in": "on_exception"}]},
    ],
    ids=["teardown", "on_exception"],
)
def test_of_a_second_failure_after_a_failure_shows_the_first_and_warns_of_the_second(
    run: Callable, settings: dict[str, Any]
) -> None:
    outcome = run(**THREE, **settings)
    assert outcome.result.error.message == "step 2 went wrong"
    (warning,) = outcome.of("warning")
    assert "went wrong" in warning.payload.message
    assert outcome.calls[-1] == "teardown"


def test_of_a_failing_callback_stops_those_behind_it_also_when_its_error_has_no_text(run: Callable) -> None:
    callbacks = ["recording_trainer:RaisesMute", {"use": "recording_trainer:Watch", "name": "two"}]
    outcome = run(mock_batches=["a"], callbacks=callbacks)
    assert "two: on_batch_end 1" not in outcome.calls
    assert (outcome.result.error.type, outcome.result.error.message) == ("Mute", "<exception str() failed>")
    assert outcome.calls[-1] == "teardown"
    failed = run(**THREE, **WATCHED, hyperparams={"raise_in": "setup"}, run_id="setup")
    assert (failed.calls, failed.result.status) == (["setup", "on_exception ValueError"], "failed")


def test_without_data_every_batch_is_none(run: Callable) -> None:
    outcome = run(max_steps=2, **WATCHED)
    assert [call for call in outcome.calls if "batch" in call] == [
        "prepare_batch None",
        "on_batch_begin None 0",
        "on_batch_end 1",
        "prepare_batch None",
        "on_batch_begin None 1",
        "on_batch_end 2",
    ]
    assert "on_epoch_end 0" not in outcome.calls


@pytest.mark.parametrize(("metric_every", "steps"), [(3, [3, 6, 7]), (1, [1, 2, 3, 4, 5, 6, 7]), (0, [])])
def test_a_wrapper_marked_when_recorded_is_called_where_metrics_are_recorded(
    run: Callable, metric_every: int, steps: list[int]
) -> None:
    watch = {"callbacks": ["recording_trainer:WatchRecorded"]}
    outcome = run(**watch, mock_batches=list("abcdefg"), metric_every=metric_every)
    assert [call for call in outcome.calls if call.startswith("recorded")] == [f"recorded {step}" for step in steps]
    assert sorted(outcome.losses) == steps
