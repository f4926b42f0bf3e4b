"""Reporters from other distributions: readers of the events, who cannot hurt the run."""

import json
from pathlib import Path
from typing import Any

import pytest

REPORTERS = """
    import json
    import time
    from pathlib import Path
    import attrs
    from hostcore_hookspecs import FatalError

    class Scribe:
        @attrs.frozen
        class Settings:
            path: Path
            fail_at: str = ""
            warning: str = ""

        def __init__(self, *, settings):
            self.settings = settings

        def write(self, value):
            with self.settings.path.open("a") as file:
                file.write(json.dumps(value) + "\\n")

        def open(self, ctx):
            self.write(["open", ctx.run_id, ctx.attempt, ctx.job.trainer, ctx.last_seq])
            if self.settings.warning:
                ctx.warn(self.settings.warning)

        def report_event(self, event):
            if event.name == self.settings.fail_at:
                raise FatalError("the tracker is gone")
            self.write(event.as_dict())

        def close(self):
            self.write(["close"])

    class Patient:
        '''Has the training wait until the run's log tells that a reporter has failed.'''

        @attrs.frozen
        class Settings:
            path: Path = attrs.field(metadata={"reads": True})

        def __init__(self, *, settings):
            self.settings = settings

        def on_train_begin(self, run_state):
            while b"reporter_failed" not in self.settings.path.read_bytes():
                time.sleep(0.01)
"""


@pytest.fixture
def scribe(site: Any) -> None:
    """The reporter ``scribe`` and the callback ``patient``, of another distribution than the trainer."""
    entry_points = {
        "hostcore.reporters": {"scribe": "scribes:Scribe"},
        "hostcore.callbacks": {"patient": "scribes:Patient"},
    }
    site.install("scribes", version="0.2", modules={"scribes.py": REPORTERS}, entry_points=entry_points)


def written(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_reporter_is_told_every_event_of_the_log_in_order(environment: Any, halving: Any, scribe: None) -> None:
    answer = environment.run(**{**halving, "reporters": [{"use": "scribe", "path": "notes"}]})
    assert answer.returncode == 0, answer.stderr
    opened, *told, closed = written(environment.folder / "notes")
    assert opened == ["open", "try", 1, "halving", 0]
    assert told == environment.events("try")
    assert [event["seq"] for event in told] == list(range(1, len(told) + 1))
    assert (told[0]["event"], told[-1]["event"]) == ("run_submitted", "run_succeeded")
    assert closed == ["close"]
    (recorded,) = [one for one in environment.document("try/config/run.json")["plugins"] if one["kind"] == "reporter"]
    assert (recorded["name"], recorded["distribution"], recorded["version"]) == ("scribe", "scribes", "0.2")


def test_a_reporter_that_gives_up_is_left_out_and_others_go_on(environment: Any, halving: Any, scribe: None) -> None:
    failing = {"use": "scribe", "path": "failing", "fail_at": "run_started"}
    reporters = [failing, {"use": "scribe", "path": "healthy"}]
    patient = {"use": "patient", "path": "runs/try/logs/events.jsonl"}
    answer = environment.run(**{**halving, "reporters": reporters, "callbacks": [patient]})
    assert answer.returncode == 0
    assert "Traceback" not in answer.stderr
    assert environment.document("try/result.json")["status"] == "succeeded"
    healthy = written(environment.folder / "healthy")
    assert healthy[1:-1] == environment.events("try")
    (failure,) = [event for event in healthy[1:-1] if event["event"] == "reporter_failed"]
    assert failure["reporter"] == "scribe (scribes 0.2)"
    assert failure["message"] == "FatalError: the tracker is gone; it gets no more events in this attempt"
    opened, told, closed = written(environment.folder / "failing")
    assert (opened[0], told["event"], closed) == ("open", "run_submitted", ["close"])


def test_a_reporter_warns_in_the_log_of_the_run(environment: Any, halving: Any, scribe: None) -> None:
    use = {"use": "scribe", "path": "notes", "warning": "a value is left out"}
    answer = environment.run(**{**halving, "reporters": [use]})
    assert answer.returncode == 0, answer.stderr
    warnings = [event for event in environment.events("try") if event["event"] == "warning"]
    (message,) = [one["message"] for one in warnings if one["code"] == "reporter.value"]
    assert "scribe" in message
    assert message.endswith("a value is left out")
