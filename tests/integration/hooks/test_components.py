"""Several components in one run: who is called when, who is blamed, who has asked, and what is left behind."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

Play = Callable[..., Any]


def called(played: Any, *names: str) -> list[str]:
    """The calls of some components, without the place."""
    calls = [line.split("  ")[-1] for line in played.calls]
    return [call for call in calls if call.partition(".")[0] in names]


def test_callbacks_are_called_in_the_order_of_the_job(play: Play, data: dict[str, Any]) -> None:
    callbacks = [{"use": "recorder:Callback", "name": name} for name in ("second", "first")]
    played = play(callbacks=callbacks, validation=data["validation"], test=data["test"], validate_every=2)
    hooks = [call for call in called(played, "first", "second") if "callback_state" not in call]
    assert hooks[0::2] == [call.replace("first", "second") for call in hooks[1::2]]
    # train, epoch, batches, the check, validations, test, checkpoint
    assert len(hooks) == 2 * (2 + 2 + 3 * 2 + 1 + 2 * 2 + 2 + 1)


def test_the_first_wrapper_of_the_job_is_the_outermost(play: Play, data: dict[str, Any]) -> None:
    wrappers = [{"use": "recorder:Wrapper", "name": name} for name in ("outer", "inner")]
    played = play(callbacks=wrappers, validation=data["validation"], validate_every=3, max_steps=3)
    nested = ["outer begins {0}", "inner begins {0}", "trainer.{0}", "inner ends {0}", "outer ends {0}"]
    calls = [call.partition(" [")[0] for call in called(played, "trainer", *_wrapping(played))]
    calls = [call for call in calls if "train_step" in call or "validate_step" in call]
    methods = [*["validate_step"] * 2, *["train_step"] * 3, *["validate_step"] * 2]  # the first two are a check
    expected = [line.format(method) for method in methods for line in nested]
    assert calls == expected
    # Each wrapper adds one.
    assert played.of("validation")[0].payload.metrics == {"val/loss": 101 + 2, "val/steps": 3.0}


def _wrapping(played: Any) -> set[str]:
    return {call.split("  ")[-1].partition(".")[0] for call in played.calls}


def test_a_callback_that_raises_ends_the_run_in_its_name_and_its_distributions(
    play: Play, data: dict[str, Any], site_here: Any
) -> None:
    source = """
        class Broken:
            def on_validation_end(self, metrics):
                raise KeyError("val/accuracy")
    """
    entry_points = {"hostcore.callbacks": {"broken": "brittle:Broken"}}
    site_here.install("brittle-plugins", version="2.1", modules={"brittle.py": source}, entry_points=entry_points)
    callbacks = ["recorder:Callback", "broken"]
    played = play(callbacks=callbacks, validation=data["validation"], validate_every=2)
    error = played.result.error
    assert (played.result.status, played.result.exit_code, played.result.step) == ("failed", 1, 2)
    assert (error.type, error.plugin, error.rank) == ("KeyError", "broken (brittle-plugins 2.1)", 0)
    assert "brittle.py" in error.traceback
    assert called(played, "callback", "trainer")[-3:] == [
        "callback.on_validation_end val/loss 101, val/steps 2",
        "callback.on_exception KeyError: 'val/accuracy'",
        "trainer.teardown",
    ]


def test_everybody_who_asks_to_stop_is_recorded(play: Play) -> None:
    callbacks = [
        {"use": "recorder:Callback", "name": "first", "acts": {"on_batch_end at 2": "stop"}},
        {"use": "recorder:Callback", "name": "second", "acts": {"on_batch_end at 2": "stop"}},
    ]
    played = play(callbacks=callbacks, hyperparams={"acts": {"train_step at 1": "stop"}})
    asked = [
        ("train_step has seen enough", "recorder:Trainer"),
        ("on_batch_end has seen enough", "recorder:Callback"),
        ("on_batch_end has seen enough", "recorder:Callback"),
    ]
    assert [(one.payload.reason, one.payload.requested_by) for one in played.of("stop_requested")] == asked
    heard = [call for call in called(played, "second") if "stop" in call]
    assert heard == [f"second.on_stop_requested {reason} ({by})" for reason, by in asked]
    result = played.result
    assert (result.status, result.reason, result.requested_by, result.step) == ("succeeded", *asked[0], 2)


def test_samples_are_written_and_those_of_a_later_attempt_replace_them(play: Play) -> None:
    job = {"samples": [{"prompt": "a dog"}, {"prompt": "a house"}], "sample_every": 2, "epochs": 2}
    fails = {"checkpoint_every": 3, "hyperparams": {"acts": {"train_step at 4": "raise"}}}
    samples = play(**job, **fails).path / "samples"
    written = {
        f"step-{step:06d}/{number}/text.txt": f"{prompt} at {step}"
        for step in (2, 4)
        for number, prompt in enumerate(["a dog", "a house"])
    }
    assert _texts(samples) == written

    (samples / "step-000002/0/note.txt").write_text("mine")
    (samples / "step-000004/0/note.txt").write_text("of the first attempt")
    half = samples / "step-000004/.1.writing/half.txt"  # as a kill would have left it
    half.parent.mkdir()
    half.write_text("half a sample")
    again = play(**job, **fails)
    assert (again.result.attempt, [one.step for one in again.of("run_resumed")]) == (2, [3])
    assert _texts(samples) == {**written, "step-000002/0/note.txt": "mine"}
    assert [one.payload.path for one in again.of("sample_saved")] == [
        "samples/step-000004/0",
        "samples/step-000004/1",
    ]


def test_sample_every_without_samples_is_one_empty_request(play: Play) -> None:
    played = play(sample_every=2, max_steps=4)
    assert _texts(played.path / "samples") == {
        "step-000002/0/text.txt": "None at 2",
        "step-000004/0/text.txt": "None at 4",
    }
    (started,) = [one.payload for one in played.of("run_started")]
    assert (started.sample_every, started.samples) == (2, 1)
    assert not played.of("warning")


def _texts(samples: Path) -> dict[str, str]:
    return {str(path.relative_to(samples)): path.read_text() for path in samples.rglob("*") if path.is_file()}


def test_models_are_in_evaluation_mode_for_samples_too_and_they_leave_no_trace(play: Play, exact: ModuleType) -> None:
    numbers = {"parquet_paths": "numbers.parquet", "batch_size": 4}
    job = {"trainer": "exact:Noisy", "callbacks": [], "dataset": numbers, "max_steps": 4}
    alone = play(**job, run_id="alone")
    sampled = play(**job, run_id="sampled", samples=[{"seed": 1}], sample_every=1)
    assert [one.payload.metrics for one in sampled.of("metrics")] == [
        one.payload.metrics for one in alone.of("metrics")
    ]
    assert [seen for seen in exact.seen if seen[0] == "sample"] == [("sample", [False] * 7, False)] * 4
