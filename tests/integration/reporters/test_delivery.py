"""Runs whose reporters raise, hang, kill the process or are required: what becomes of the run, and what they hear."""

import json
import signal
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from fork_server import ran

TRAINER = """
    import torch
    from hostcore_hookspecs import StepResult

    class Trainer:
        def setup(self, ctx): torch.set_num_threads(1)
        def configure(self, ctx): return {"x": torch.zeros(1)}
        def prepare_batch(self, raw_batch, state, ctx): return raw_batch
        def train_step(self, prepared_batch, state, ctx): return StepResult(metrics={"loss": 1.0})
        def state_dict(self, state): return dict(state)
        def load_state_dict(self, state, payload, ctx): state.update(payload)
"""

REPORTERS = """
    import json, os, signal, time
    from pathlib import Path

    import attrs
    from hostcore_hookspecs import FatalError

    @attrs.frozen(kw_only=True)
    class Settings:
        path: Path
        until: Path | None = None

    class Recorder:
        Settings = Settings
        def __init__(self, settings): self.settings, self.calls = settings, 0
        def report_event(self, event):
            self.calls += 1
            self.meet(event)
            with self.settings.path.open("a") as file:
                file.write(json.dumps([event.seq, event.attempt, event.name]) + chr(10))
        def meet(self, event): pass

    class Hanging(Recorder):
        # until another reporter, which it must not delay, has heard the end of the run
        def meet(self, event):
            while not (self.settings.until.exists() and "run_succeeded" in self.settings.until.read_text()):
                time.sleep(0.01)

    class Leaving(Recorder):
        def meet(self, event):
            if self.calls % 3 == 0:
                raise SystemExit(3)

    class Refusing(Recorder):
        def meet(self, event):
            if event.name == "metrics" and not self.settings.until.exists():
                raise FatalError("the quota is used up", hint="buy more")

    class Murderous(Recorder):
        # takes the supervisor along, as a crash in native code would
        def meet(self, event):
            if event.name == "metrics" and event.step == 20 and not self.settings.until.exists():
                self.settings.until.touch()
                os.kill(os.getpid(), signal.SIGKILL)
"""


@attrs.frozen
class Workshop:
    """A folder with a trainer, and reporters that are installed."""

    path: Path
    environment: dict[str, str]

    def use(self, name: str, until: str | None = None, **keys: Any) -> dict[str, Any]:
        """One use of a reporter, which writes down in a file of its name what it has taken."""
        path = self.path / f"{name}.jsonl"
        return {"use": name, "path": str(path), **({"until": str(self.path / until)} if until else {}), **keys}

    def hostcore(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return ran(arguments, cwd=self.path, env=self.environment, text=True)

    def run(self, *reporters: Any) -> "subprocess.CompletedProcess[str]":
        job = {"trainer": "trainer:Trainer", "run_id": "a", "max_steps": 40, "device": "cpu", "reporters": reporters}
        (self.path / "job.json").write_text(json.dumps(job))
        return self.hostcore("run", "job.json", "--json")

    def told(self, name: str) -> list[tuple[int, int, str]]:
        return [tuple(json.loads(line)) for line in (self.path / f"{name}.jsonl").read_text().splitlines()]

    @property
    def log(self) -> list[dict[str, Any]]:
        lines = (self.path / "runs" / "a" / "logs" / "events.jsonl").read_bytes().splitlines()
        return [orjson.loads(line) for line in lines]

    @property
    def everything(self) -> list[tuple[int, int, str]]:
        return [(event["seq"], event["attempt"], event["event"]) for event in self.log]


@pytest.fixture
def workshop(site: Any, tmp_path: Path) -> Workshop:
    names = ("Recorder", "Hanging", "Leaving", "Refusing", "Murderous")
    site.install(
        "reporters",
        modules={"the_reporters.py": REPORTERS},
        entry_points={"hostcore.reporters": {name.lower(): f"the_reporters:{name}" for name in names}},
    )
    folder = tmp_path / "workshop"
    folder.mkdir()
    (folder / "trainer.py").write_text(textwrap.dedent(TRAINER))
    environment = {name: value for name, value in site.environment.items() if not name.startswith("HOSTCORE_")}
    return Workshop(folder, environment)


def test_reporters_that_hang_or_end_the_thread_delay_nobody_and_miss_nothing(workshop: Workshop) -> None:
    done = workshop.run(
        workshop.use("hanging", until="recorder.jsonl"),
        workshop.use("leaving"),
        workshop.use("recorder"),
    )
    assert done.returncode == 0, done.stderr
    assert workshop.log[-1]["event"] == "run_succeeded"
    for name in ("hanging", "leaving", "recorder"):
        assert workshop.told(name) == workshop.everything, name
    assert "Traceback" not in done.stderr


def test_a_required_reporter_that_gives_up_fails_the_run_and_is_told_the_rest_by_a_replay(workshop: Workshop) -> None:
    done = workshop.run(workshop.use("refusing", until="quota", required=True), workshop.use("recorder"))
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"]) == (1, "failed")
    assert "refusing (reporters 1.0)" in result["error"]["message"]
    assert [event["event"] for event in workshop.log][-1] == "run_failed"
    (failed,) = [event for event in workshop.log if event["event"] == "reporter_failed"]
    assert "FatalError: the quota is used up (buy more); it gets no more events in this attempt" in failed["message"]
    assert workshop.told("recorder") == workshop.everything

    first = workshop.hostcore("replay", "a", "--reporter", "refusing", "--pending")
    assert (first.returncode, "the quota is used up" in first.stderr) == (1, True)
    (workshop.path / "quota").touch()
    second = workshop.hostcore("replay", "a", "--reporter", "refusing", "--pending")
    assert second.returncode == 0, second.stderr
    assert workshop.told("refusing") == workshop.everything


def test_a_reporter_that_kills_the_supervisor_costs_no_event_and_no_checkpoint(workshop: Workshop) -> None:
    killed = workshop.run(workshop.use("murderous", until="killed"), workshop.use("recorder"))
    assert killed.returncode == -signal.SIGKILL
    resumed = workshop.hostcore("resume", "a", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["step"] == 40
    for name in ("murderous", "recorder"):
        told = workshop.told(name)
        assert sorted(set(told)) == workshop.everything, "each at least once"
        again = next((place for place in range(1, len(told)) if told[place] <= told[place - 1]), len(told))
        assert told[:again] == sorted(told[:again])
        assert told[again:] == sorted(told[again:]), "in order, before the crash and after it"
