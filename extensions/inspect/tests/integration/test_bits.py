"""``hostcore compare A B --bits``: the first step at which two runs differ, and by how much."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from fork_server import ran

TRAINER = """
import os
import torch
from hostcore_hookspecs import StepResult

class Trainer:
    def configure(self, ctx):
        return {"weight": torch.zeros(3), "half": torch.ones(2, dtype=torch.bfloat16), "steps": torch.tensor(0)}

    def prepare_batch(self, raw_batch, state, ctx):
        return raw_batch

    def train_step(self, prepared_batch, state, ctx):
        state["weight"] += torch.rand(3)
        state["steps"] += 1
        if state["steps"] == int(os.environ.get("DRAWS_AT", "0")):
            torch.rand(1)
        step = ctx.run_state.step + 1
        if step == ctx.hyperparams.get("nudged_at"):
            state["weight"][1] = torch.nextafter(state["weight"][1], torch.tensor(9.0))
        return StepResult(metrics={"loss": state["weight"].sum()})
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bits")
    (folder / "bits_trainer.py").write_text(TRAINER)
    for run_id, keys in {
        "one": {},
        "same": {},
        "drawn": {},
        "nudged": {"hyperparams": {"nudged_at": 6}},
        "seeded": {"seed": 1},
        "short": {"max_steps": 1, "metric_every": 0, "checkpoint_every": 0, "keep_checkpoints": 1},
    }.items():
        job = {
            "trainer": "bits_trainer:Trainer",
            "max_steps": 8,
            "metric_every": 1,
            "checkpoint_every": 2,
            "terminal": False,
        }
        (folder / "job.json").write_text(json.dumps({**job, "keep_checkpoints": 9, "run_id": run_id, **keys}))
        environment = {**os.environ, "DRAWS_AT": "4"} if run_id == "drawn" else None
        assert ran(["run", "job.json", "--in-process"], cwd=folder, env=environment).returncode == 0
    return folder


def compared(runs: Path, one: str, other: str, *, code: int) -> Any:
    ended = ran(["compare", one, other, "--bits", "--json"], cwd=runs, text=True)
    assert ended.returncode == code, ended.stderr
    return json.loads(ended.stdout)


def test_runs_that_are_the_same_are_equal(runs: Path) -> None:
    found = compared(runs, "one", "same", code=0)
    assert (found["equal"], found["compared_steps"], found["compared_checkpoints"]) == (True, 8, 4)
    assert found["first_different_step"] is found["cause"] is None
    assert found["tensors"] == []


def test_a_bit_that_flipped_is_found_with_its_step_and_tensor(runs: Path) -> None:
    found = compared(runs, "one", "nudged", code=1)
    assert found["first_different_step"] == 6
    assert (found["last_equal_checkpoint"], found["first_different_checkpoint"]) == (4, 6)
    assert found["tensors"] == [{"name": "/weight", "max_ulp": 1}]
    assert (found["cause"], found["details"]) == ("job", ["/hyperparams/nudged_at"])
    shown = ran(["compare", "one", "nudged", "--bits"], cwd=runs, text=True)
    assert "first different step" in shown.stdout


def test_another_seed_differs_from_the_first_step_on(runs: Path) -> None:
    found = compared(runs, "one", "seeded", code=1)
    assert (found["first_different_step"], found["metric"][0]) == (1, "train/loss")
    assert found["last_equal_checkpoint"] is None
    assert "/seed" in found["details"]


def test_a_random_state_that_differs_where_weights_are_alike_is_the_cause(runs: Path) -> None:
    found = compared(runs, "one", "drawn", code=1)
    assert (found["last_equal_checkpoint"], found["first_different_step"]) == (4, 5)
    assert found["cause"] == "random state"


def test_runs_without_anything_in_common_are_an_error(runs: Path) -> None:
    (error,) = compared(runs, "one", "short", code=2)["errors"]
    assert "no recorded step and no checkpoint in common" in error["message"]
    ended = ran(["compare", "one", "same", "same", "--bits"], cwd=runs, text=True)
    assert (ended.returncode, "--bits compares two runs" in ended.stderr) == (2, True)
