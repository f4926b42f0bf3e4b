"""Callbacks from other distributions: what they wrap, what they remember, who is blamed."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

DIARY = """
    from pathlib import Path
    import attrs

    class Diary:
        '''Writes down every call.'''

        @attrs.frozen
        class Settings:
            path: Path

        def __init__(self, *, settings):
            self.path = settings.path

        def note(self, *words):
            with self.path.open("a") as file:
                print(*words, file=file)

        def on_train_end(self, run_state): self.note("on_train_end", run_state.step)
        def on_batch_begin(self, batch, run_state): self.note("on_batch_begin", batch, run_state.step)
        def on_checkpoint_saved(self, checkpoint): self.note("on_checkpoint_saved", checkpoint.step, checkpoint.final)
        def on_stop_requested(self, reason, requested_by): self.note("on_stop_requested", reason)
        def on_exception(self, error): self.note("on_exception", error)
"""
SCALING = """
    import attrs
    from hostcore_hookspecs import hookimpl

    class Scale:
        '''Multiplies the loss that a trainer reports, and counts its steps.'''

        @attrs.frozen
        class Settings:
            factor: float

        def __init__(self, *, settings):
            self.settings = settings
            self.steps = 0

        @hookimpl(wrapper=True)
        def train_step(self, ctx):
            result = yield
            self.steps += 1
            loss = result.metrics["loss"] * self.settings.factor
            return attrs.evolve(result, metrics={"loss": loss, "wrapped_steps": self.steps})

        def callback_state(self): return {"steps": self.steps}
        def load_callback_state(self, payload): self.steps = payload["steps"]

    class Stop:
        def on_batch_end(self, run_state, ctx):
            if run_state.step == 3:
                ctx.request_stop("three are enough")
"""


@pytest.fixture
def diary(site: Any, tmp_path: Path) -> Path:
    """The file of the callback ``diary``; ``scale`` and ``stop`` are another distribution's."""
    site.install(
        "diaries", modules={"diaries.py": DIARY}, entry_points={"hostcore.callbacks": {"diary": "diaries:Diary"}}
    )
    entry_points = {"hostcore.callbacks": {"scale": "scaling:Scale", "stop": "scaling:Stop"}}
    site.install("scaling", modules={"scaling.py": SCALING}, entry_points=entry_points)
    return tmp_path / "diary.txt"


USE_DIARY = {"use": "diary", "path": "diary.txt"}


def test_a_callback_that_stops_a_run_is_named_and_its_state_comes_back(
    environment: Any, halving: Any, diary: Path
) -> None:
    callbacks = [USE_DIARY, {"use": "scale", "factor": 10}, "stop"]
    assert environment.run(**halving, metric_every=1, callbacks=callbacks).returncode == 0
    result = environment.document("try/result.json")
    assert (result["status"], result["step"], result["reason"]) == ("succeeded", 3, "three are enough")
    assert result["requested_by"] == "stop (scaling 1.0)"
    assert diary.read_text().splitlines()[-3:] == [
        "on_stop_requested three are enough",
        "on_checkpoint_saved 3 True",
        "on_train_end 3",
    ]

    assert environment.run(**{**halving, "epochs": 3}, metric_every=1, callbacks=callbacks).returncode == 0
    metrics = [event for event in environment.events("try") if event["event"] == "metrics"]
    assert [event["metrics"]["train/loss"] for event in metrics][:3] == [40, 20, 10], "the trainer's 4, 2, 1, times 10"
    assert [(event["attempt"], event["metrics"]["wrapped_steps"]) for event in metrics] == [
        (1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (2, 6)
    ]  # fmt: skip


def test_a_failing_run_is_told_to_callbacks_and_blamed_on_the_right_plugin(
    environment: Any, halving: Any, diary: Path
) -> None:
    job = {**halving, "mock_batches": [1, "bad"]}
    answer = environment.run(**job, callbacks=[USE_DIARY, {"use": "scale", "factor": 10}])
    assert answer.returncode == 1
    assert diary.read_text().splitlines()[-2:] == ["on_batch_begin bad 1", "on_exception a bad batch"]
    error = environment.document("try/result.json")["error"]
    assert error["plugin"] == "halving (halvers 1.2)"
    assert "halvers.py" in error["traceback"]
    # What ran is on record, whatever became of it.
    plugins = environment.document("try/config/run.json")["plugins"]
    assert [(plugin["kind"], plugin["name"], plugin["distribution"], plugin["version"]) for plugin in plugins] == [
        ("trainer", "halving", "halvers", "1.2"),
        ("callback", "diary", "diaries", "1.0"),
        ("callback", "scale", "scaling", "1.0"),
        ("launcher", "local", "hostcore-builtin-plugins", version("hostcore-builtin-plugins")),
    ]
    assert len({plugin["sha256"] for plugin in plugins}) == 4
    assert all(len(plugin["sha256"]) == 64 for plugin in plugins)
