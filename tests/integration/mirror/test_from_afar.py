"""Runs that were started where their directory is not seen: what the commands here say of them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from waiting import wait_until

from hostcore.cli import cli

HERE = Path(__file__).parent

TRAINER = """
import os, time
from hostcore_hookspecs import StepResult

class Trainer:
    def setup(self, ctx): pass
    def configure(self, ctx): return {}
    def prepare_batch(self, raw_batch, state, ctx): return raw_batch
    def train_step(self, prepared_batch, state, ctx):
        while ctx.run_state.step == 1 and not os.path.exists(os.environ["HOSTCORE_TEST_GO"]) and not ctx.is_canceled():
            time.sleep(0.02)
        return StepResult(metrics={"loss": 1.0})
    def state_dict(self, state): return {}
    def load_state_dict(self, state, payload): pass
"""


@pytest.fixture
def away(site_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """``away("status", "a")``: a command, with the launcher ``far`` and a trainer that waits for the file ``go``."""
    site_here.install(
        "far-launcher",
        modules={"far_launcher.py": (HERE / "far_launcher.py").read_text(), "far_trainer.py": TRAINER},
        entry_points={
            "hostcore.launchers": {"far": "far_launcher:Far"},
            "hostcore.trainers": {"waiting": "far_trainer:Trainer"},
        },
    )
    monkeypatch.setenv("PYTHONPATH", site_here.environment["PYTHONPATH"])
    monkeypatch.setenv("HOSTCORE_TEST_FAR", str(tmp_path / "far"))
    monkeypatch.setenv("HOSTCORE_TEST_GO", str(tmp_path / "go"))
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setattr("hostcore.runs.launch._FRESH_SECONDS", 0.0)

    def call(*arguments: str) -> Any:
        result = CliRunner().invoke(cli, [*arguments, "--json"], prog_name="hostcore", catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    yield call
    (tmp_path / "go").touch()
    for here in (tmp_path / "far").glob("*"):
        wait_until((here / "exit").exists, "the end of what was launched")


def _job(tmp_path: Path, **keys: Any) -> str:
    job = {"run_id": "a", "trainer": "waiting", "device": "cpu", "max_steps": 3, "terminal": False, "launcher": "far"}
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**job, "checkpoint_base_uri": str(tmp_path / "mirror"), **keys}))
    return str(path)


def test_status_and_list_say_what_the_launcher_and_the_mirror_say(away: Callable[..., Any], tmp_path: Path) -> None:
    away("run", "--detach", _job(tmp_path))
    mirror = tmp_path / "mirror" / "a" / "framework=waiting"
    files = (mirror / "attempts" / "1.json", mirror / "config" / "run.json")
    wait_until(lambda: all(file.exists() for file in files), "the run to be in the mirror")

    going_on = away("status", "a")
    assert (going_on["status"], going_on["attempt"], going_on["ended_ms"]) == ("running", 1, None)
    assert "waiting" in {plugin["name"] for plugin in going_on["plugins"]}
    assert [run["status"] for run in away("list")["runs"]] == ["running"]

    (tmp_path / "go").touch()
    wait_until(lambda: away("list")["runs"][0]["status"] == "succeeded", "its end")
    ended = away("status", "a")
    assert (ended["status"], ended["step"], ended["max_steps"]) == ("succeeded", 3, 3)
    assert [one["status"] for one in ended["attempts"]] == ["succeeded"]
    assert ended["metrics"]["train/loss"] == 1.0
    log = (tmp_path / "runs" / "a" / "logs" / "events.jsonl").read_bytes()
    assert log == (mirror / "logs" / "events.jsonl").read_bytes()

    for exit_code in (tmp_path / "far").glob("*/exit"):
        exit_code.write_text("1")  # an engine that has forgotten, and says something else now
    assert away("list")["runs"][0]["status"] == "succeeded"


def test_cancel_asks_the_launcher_of_a_run_that_cannot_hear(away: Callable[..., Any], tmp_path: Path) -> None:
    away("run", "--detach", _job(tmp_path))
    wait_until((tmp_path / "mirror/a/framework=waiting/attempts/1.json").exists, "the run to be in the mirror")

    done = away("cancel", "a")

    assert (done["status"], done["requested"], done["attempt"]) == ("cancelled", True, 1)
    assert away("status", "a")["status"] == "cancelled"


def test_a_run_that_ended_far_away_goes_on_here_from_its_mirror(away: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    away("run", _job(tmp_path))
    here = tmp_path / "runs" / "a"
    assert not list((here / "checkpoints").iterdir())

    done = away("resume", "a", "--set", "launcher=local", "--set", "max_steps=5")

    assert (done["status"], done["attempt"], done["step"]) == ("succeeded", 2, 5)
    events = [json.loads(line) for line in (here / "logs" / "events.jsonl").read_bytes().splitlines()]
    assert [one["step"] for one in events if one["event"] == "run_resumed"] == [3]
    assert away("status", "a")["attempt"] == 2
