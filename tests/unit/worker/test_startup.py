"""What is checked before a run begins, and the device that it gets."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hostcore.errors import Errors


def test_everything_that_is_wrong_is_told_at_once(run: Callable, tmp_path: Path) -> None:
    with pytest.raises(Errors) as caught:
        run(
            trainer="recording_trainer:Nobody",
            callbacks=["recording_trainer:Watch", "recording_trainer:Nothing"],
            device="cuda:99",
            dataset={"parquet_paths": ["none.parquet"]},
        )
    assert {error.pointer for error in caught.value.errors} >= {"/trainer", "/callbacks/1"}
    assert not (tmp_path / "runs" / "a").exists()


def test_device_and_data_are_told_at_once(run: Callable) -> None:
    with pytest.raises(Errors) as caught:
        run(device="cuda:99", dataset={"parquet_paths": ["none.parquet"]})
    assert {error.code for error in caught.value.errors} == {"device.unavailable", "data.invalid"}


def test_the_first_callback_with_an_opinion_chooses_the_device(run: Callable) -> None:
    callbacks = ["recording_trainer:NoOpinion", "recording_trainer:ChoosesCpu", "recording_trainer:ChoosesNonsense"]
    outcome = run(max_steps=1, device="auto", callbacks=callbacks)
    (started,) = outcome.of("run_started")
    assert started.payload.device == "cpu"
    assert [call for call in outcome.calls if call.startswith("select_device")] == [
        *("select_device none", "select_device cpu")
    ]


def test_a_chosen_device_that_is_not_there_is_an_error(run: Callable) -> None:
    nonsense = {"max_steps": 1, "callbacks": ["recording_trainer:ChoosesNonsense"]}
    with pytest.raises(Errors, match="there is no device 'cuda:99' here"):
        run(device="auto", **nonsense)
    assert run(device="cpu", **nonsense).result.status == "succeeded", "nobody is asked"


HESITATES = "the callback recording_trainer:Hesitates could not be started: ValueError: hard to say"
BROKEN = "the data source recording_trainer:BrokenSource could not be started: "


@pytest.mark.parametrize(
    ("how", "pointer", "message"),
    [
        pytest.param(None, "/callbacks/0", HESITATES, id="callback"),
        pytest.param("", "/dataset/source", f"{BROKEN}KeyError: 'index'", id="data source"),
        pytest.param("quit", "/dataset/source", f"{BROKEN}SystemExit: 3", id="sys.exit"),
        pytest.param("interrupt", "/dataset/source", f"{BROKEN}KeyboardInterrupt", id="interrupt"),
        pytest.param("settings", "/dataset/how", "that is not how", id="settings"),
    ],
)
def test_a_plugin_that_raises_before_the_run_makes_the_job_invalid(
    run: Callable, tmp_path: Path, how: str | None, pointer: str, message: str
) -> None:
    keys = {"dataset": {"source": "recording_trainer:BrokenSource", "how": how}}
    if how is None:
        keys = {"device": "auto", "callbacks": ["recording_trainer:Hesitates"]}
    with pytest.raises(Errors) as caught:
        run(max_steps=1, **keys)
    (error,) = caught.value.errors
    assert error.message.startswith(message)
    assert error.pointer == pointer
    assert error.plugin
    assert not (tmp_path / "runs" / "a").exists()


def test_what_was_submitted_tells_how_long_the_run_will_be(run: Callable) -> None:
    dataset = {"source": "mock", "num_rows": 103, "batch_size": 10}
    outcome = run(dataset=dataset, epochs=2, max_steps=100, trainer="recording_trainer:Trainer")
    submitted = outcome.of("run_submitted")[0].payload
    assert (submitted.total_steps, submitted.num_rows, submitted.batch_size) == (20, 103, 10)
    assert outcome.result.step == 20


@pytest.mark.parametrize(
    ("keys", "steps"),
    [
        ({"max_steps": 4}, 4),
        ({"max_steps": 2, "mock_batches": ["a", "b", "c"]}, 2),
        ({"max_steps": 5, "mock_batches": ["a", "b", "c"]}, 5),
        ({"mock_batches": ["a", "b", "c"]}, 3),
        ({"mock_batches": ["a", "b", "c"], "epochs": 2}, 6),
        ({"mock_batches": ["a", "b", "c"], "epochs": 2, "max_steps": 4}, 4),
        ({"mock_batches": ["a", "b", "c"], "epochs": 1, "max_steps": 4}, 3),
    ],
    ids=str,
)
def test_whichever_of_steps_and_epochs_ends_first_ends_the_run(run: Callable, keys: dict, steps: int) -> None:
    assert run(**keys).result.step == steps


def test_a_run_that_is_complete_already_makes_no_step(run: Callable) -> None:
    """More epochs are asked for, but the steps still end it where it ended."""
    run(mock_batches=["a", "b", "c"], epochs=1, max_steps=3)
    outcome = run(mock_batches=["a", "b", "c"], epochs=2, max_steps=3)
    assert (outcome.result.status, outcome.result.step, outcome.result.attempt) == ("succeeded", 3, 2)
    assert [call for call in outcome.calls if call.startswith("train_step")] == []
