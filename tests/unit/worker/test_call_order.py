"""The order of all calls. Each transcript is whole: nothing else is called."""

from collections.abc import Callable
from typing import Any

import pytest

WATCHED = {"callbacks": ["recording_trainer:Watch"]}
THREE = {"mock_batches": ["a", "b", "c"]}


def lines(transcript: str) -> list[str]:
    return [line.strip() for line in transcript.strip().splitlines()]


def test_of_two_epochs_with_checkpoints(run: Callable) -> None:
    outcome = run(**THREE, **WATCHED, epochs=2, checkpoint_every=2, metric_every=2)
    saved = [call for call in outcome.calls if call.startswith("on_checkpoint_saved")]
    assert saved == ["on_checkpoint_saved 2", "on_checkpoint_saved 4", "on_checkpoint_saved 6 final"]
    for step, call in [(2, saved[0]), (4, saved[1])]:  # it comes when the disk is done, before the next one is begun
        begun = outcome.calls.index(f"save_checkpoint {step}")
        assert begun < outcome.calls.index(call) < outcome.calls.index("state_dict", begun)
    assert [call for call in outcome.calls if call not in saved[:2]] == lines("""
        setup
        configure
        on_train_begin 0
        on_epoch_begin 0
        prepare_batch a
        on_batch_begin a 0
        train_step 1
        on_batch_end 1
        state_dict
        callback_state 1
        prepare_batch b
        on_batch_begin b 1
        train_step 2
        on_batch_end 2
        state_dict
        save_checkpoint 2
        callback_state 2
        prepare_batch c
        on_batch_begin c 2
        train_step 3
        on_batch_end 3
        on_epoch_end 0
        on_epoch_begin 1
        prepare_batch a
        on_batch_begin a 3
        train_step 4
        on_batch_end 4
        state_dict
        save_checkpoint 4
        callback_state 4
        prepare_batch b
        on_batch_begin b 4
        train_step 5
        on_batch_end 5
        prepare_batch c
        on_batch_begin c 5
        train_step 6
        on_batch_end 6
        state_dict
        save_checkpoint 6 final
        callback_state 6
        on_checkpoint_saved 6 final
        on_epoch_end 1
        on_train_end 6
        teardown
    """)
    places = [(event.step, event.epoch) for event in outcome.events if event.name == "checkpoint_saved"]
    assert places == [(2, 0), (4, 1), (6, 1)]
    others = [event for event in outcome.events if event.name != "checkpoint_saved"]
    assert [(event.name, event.step, event.epoch) for event in others] == [
        ("run_submitted", None, None),
        ("run_started", 0, 0),
        ("epoch_started", 0, 0),
        ("metrics", 2, 0),
        ("epoch_started", 3, 1),
        ("metrics", 4, 1),
        ("metrics", 6, 1),
        ("run_succeeded", 6, 1),
    ]


def test_of_a_resume_in_the_middle_of_an_epoch(run: Callable) -> None:
    run(**THREE, **WATCHED, max_steps=4)
    outcome = run(**THREE, **WATCHED, max_steps=6)
    assert outcome.calls == lines("""
        setup
        configure
        load_state_dict 4
        load_checkpoint step 4
        load_callback_state 4
        on_train_begin 4
        prepare_batch b
        on_batch_begin b 4
        train_step 5
        on_batch_end 5
        state_dict
        callback_state 5
        prepare_batch c
        on_batch_begin c 5
        train_step 6
        on_batch_end 6
        state_dict
        save_checkpoint 6 final
        callback_state 6
        on_checkpoint_saved 6 final
        on_epoch_end 1
        on_train_end 6
        teardown
    """)
    assert [(event.name, event.step) for event in outcome.events] == [
        ("run_submitted", None),
        ("run_resumed", 4),
        ("run_started", 4),
        ("metrics", 6),
        ("checkpoint_saved", 6),
        ("run_succeeded", 6),
    ]


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


def test_of_a_stop_that_the_trainer_asked_for(run: Callable) -> None:
    outcome = run(**THREE, **WATCHED, max_steps=6, checkpoint_every=2, hyperparams={"stop_at": [2]})
    assert outcome.calls == lines("""
        setup
        configure
        on_train_begin 0
        on_epoch_begin 0
        prepare_batch a
        on_batch_begin a 0
        train_step 1
        on_batch_end 1
        state_dict
        callback_state 1
        prepare_batch b
        on_batch_begin b 1
        train_step 2
        on_batch_end 2
        on_stop_requested it is enough by recording_trainer:Trainer
        state_dict
        save_checkpoint 2 final
        callback_state 2
        on_checkpoint_saved 2 final
        on_train_end 2
        teardown
    """)
    result = outcome.result
    assert (result.status, result.reason, result.requested_by) == (
        "succeeded",
        "it is enough",
        "recording_trainer:Trainer",
    )
    assert (result.step, result.exit_code) == (2, 0)


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


def test_of_a_stop_in_the_last_step_is_that_of_a_whole_run(run: Callable) -> None:
    outcome = run(**THREE, **WATCHED, epochs=1, hyperparams={"stop_at": [3]})
    assert outcome.calls[-7:] == lines("""
        save_checkpoint 3 final
        callback_state 3
        on_checkpoint_saved 3 final
        on_epoch_end 0
        on_stop_requested it is enough by recording_trainer:Trainer
        on_train_end 3
        teardown
    """)
    assert (outcome.result.status, outcome.result.reason) == ("succeeded", None)


def test_of_two_stops_tells_of_both_and_ends_once(run: Callable) -> None:
    outcome = run(**THREE, callbacks=["recording_trainer:Watch", "recording_trainer:StopTwice"], max_steps=6)
    assert [call for call in outcome.calls if "stop" in call] == [
        "on_stop_requested first by recording_trainer:StopTwice",
        "on_stop_requested second by recording_trainer:StopTwice",
    ]
    assert (outcome.result.step, outcome.result.reason) == (1, "first")
    assert [event.payload.reason for event in outcome.of("stop_requested")] == ["first", "second"]


def test_of_a_failure(run: Callable) -> None:
    outcome = run(**THREE, **WATCHED, epochs=1, hyperparams={"raise_at": 2})
    assert outcome.calls == lines("""
        setup
        configure
        on_train_begin 0
        on_epoch_begin 0
        prepare_batch a
        on_batch_begin a 0
        train_step 1
        on_batch_end 1
        state_dict
        callback_state 1
        prepare_batch b
        on_batch_begin b 1
        train_step 2
        on_exception ValueError
        teardown
    """)
    result = outcome.result
    assert (result.status, result.exit_code, result.step) == ("failed", 1, 1)
    assert (result.error.type, result.error.message) == ("ValueError", "step 2 went wrong")
    assert result.final_checkpoint is None


def test_of_a_failure_in_setup(run: Callable) -> None:
    outcome = run(**THREE, **WATCHED, hyperparams={"raise_in": "setup"})
    assert outcome.calls == ["setup", "on_exception ValueError"]
    assert outcome.result.status == "failed"


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


def test_of_a_failure_without_a_text_is_that_of_any_other(run: Callable) -> None:
    outcome = run(**THREE, callbacks=["recording_trainer:RaisesMute"])
    assert (outcome.result.error.type, outcome.result.error.message) == ("Mute", "<exception str() failed>")
    assert outcome.calls[-1] == "teardown"


def test_of_several_callbacks_is_that_of_the_job(run: Callable) -> None:
    callbacks = [{"use": "recording_trainer:Watch", "name": name} for name in ("one", "two")]
    outcome = run(mock_batches=["a"], callbacks=callbacks)
    named = [call for call in outcome.calls if ":" in call]
    assert named[0::2] == [call.replace("two:", "one:") for call in named[1::2]]
    assert [call.partition(":")[0] for call in named] == ["one", "two"] * (len(named) // 2)


def test_of_a_failing_callback_stops_those_behind_it(run: Callable) -> None:
    callbacks = [
        {"use": "recording_trainer:Watch", "name": "one", "raise_in": "on_batch_end"},
        {"use": "recording_trainer:Watch", "name": "two"},
    ]
    outcome = run(mock_batches=["a"], callbacks=callbacks)
    assert "two: on_batch_end 1" not in outcome.calls
    assert outcome.result.error.message == "on_batch_end of one went wrong"


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
