"""The environment variables of ranks: libraries find out by them whether there is a process group to join."""

import json
from collections.abc import Callable
from typing import Any

import pytest

NAMES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}

TRAINER = """
import os
from hostcore_hookspecs import Capabilities, StepResult

class Trainer:
    CAPABILITIES = Capabilities(distributed=True)
    def setup(self, ctx):
        self.place = float(ctx.rank), float(ctx.world_size)
        print("environment", json.dumps({name: os.environ[name] for name in NAMES if name in os.environ}), flush=True)
    def configure(self, ctx): return {}
    def prepare_batch(self, raw_batch, state, ctx): return raw_batch
    def train_step(self, prepared_batch, state, ctx):
        return StepResult(metrics={"rank": self.place[0], "world_size": self.place[1]})
    def state_dict(self, state): return {}
    def load_state_dict(self, state, payload, ctx): pass
"""


@pytest.fixture
def environment_of(own_project: Callable) -> Callable[..., dict[str, str]]:
    """``environment_of(["cpu"], RANK="0")``: what rank 0 finds; the command has these variables around it."""
    project = own_project()
    (project.path / "telling.py").write_text(f"import json\nNAMES = {sorted(NAMES)}\n{TRAINER}")

    def started(devices: list[str], **around: str) -> dict[str, str]:
        job = project.job(trainer="telling:Trainer", max_steps=1, devices=devices, device="auto", metric_every=1)
        ended = project.command("run", job, **around)
        assert ended.code == 0, ended.err
        (metrics,) = (event for event in project.run().events if event["event"] == "metrics")
        assert metrics["metrics"]["world_size"] == len(devices)
        (told,) = (line for line in project.run().output().splitlines() if line.startswith("environment "))
        return json.loads(told.partition(" ")[2])

    return started


@pytest.mark.parametrize(
    "around",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"},
        {"LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
    ],
    ids=lambda around: " ".join(around) or "nothing",
)
def test_a_single_rank_has_none_of_them_whatever_is_set_around(environment_of: Any, around: dict[str, str]) -> None:
    assert environment_of(["cpu"], **around) == {}


def test_each_of_several_ranks_has_all_of_them(environment_of: Any) -> None:
    found = environment_of(["cpu", "cpu"])
    assert set(found) == NAMES
    assert (found["RANK"], found["LOCAL_RANK"], found["WORLD_SIZE"], found["LOCAL_WORLD_SIZE"]) == ("0", "0", "2", "2")
    assert found["MASTER_ADDR"] == "127.0.0.1"
    assert int(found["MASTER_PORT"]) > 0
