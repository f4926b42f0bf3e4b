"""Power cuts: whenever the power goes, no acknowledged checkpoint is lost, and nothing is left behind.

Every file system call of the commit protocol is recorded, and a disk replayed that loses what was not synced; see
``disk_replay``.
"""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from power_scenarios import AGAIN, SCENARIOS, Checker, recorded_with_errors

import hostcore


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_power_cut_at_any_call_loses_no_acknowledged_checkpoint(
    name: str, checker: Checker, tmp_path: Path, seed: int
) -> None:
    recorded = SCENARIOS[name].record(tmp_path / "recorded")
    assert checker.first_violation(recorded, random.Random(seed)) is None
    print(f"{name}: {len(recorded.log)} calls, {checker.checked} disks")
    assert checker.checked > len(recorded.log)


@pytest.mark.parametrize("name", ["one more checkpoint", AGAIN])
def test_a_power_cut_while_an_error_is_undone_loses_no_acknowledged_checkpoint(
    name: str, checker: Checker, tmp_path: Path, seed: int
) -> None:
    count = 0
    for recorded in recorded_with_errors(
        SCENARIOS[name], tmp_path / "recorded", ["create", "write", "fsync", "rename"]
    ):
        assert checker.first_violation(recorded, random.Random(seed)) is None, str(recorded.error)
        count += 1
    print(f"{name}: {count} errors, {checker.checked} disks")
    assert count > 30


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "two attempts"])
def test_a_power_cut_after_a_kill_at_any_call_loses_no_acknowledged_checkpoint(
    name: str, checker: Checker, tmp_path: Path, seed: int
) -> None:
    """The attempt after the kill sees what is not on the disk yet, acts on it, and saves a checkpoint of its own."""
    recorded = SCENARIOS[name].record(tmp_path / "recorded")
    violations = [
        f"killed after {killed.log[killed.since - 1]}: {violation}"
        for killed in recorded.killed(tmp_path / "killed")
        if (violation := checker.first_violation(killed, random.Random(seed)))
    ]
    print(f"{name}: {checker.checked} disks")
    assert violations == []


def test_the_folders_of_a_run_are_on_the_disk_before_its_first_checkpoint_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint is worth as much as the names on the way to it, and the documents that a resume reads."""
    (tmp_path / "power_trainer.py").write_text(TRAINER)
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.syspath_prepend(str(tmp_path))
    synced: set[Path] = set()
    at_first: list[set[Path]] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(Path(f"/proc/self/fd/{descriptor}").readlink()))

    def note(event: Any) -> None:
        if event.name == "checkpoint_saved":
            at_first.append(set(synced))

    job = {"trainer": "power_trainer:Trainer", "run_id": "a", "max_steps": 1, "terminal": False, "device": "cpu"}
    assert hostcore.run(job, on_event=note).status == "succeeded"
    run = tmp_path / "runs" / "a"
    needed = {run.parent.parent, run.parent, run, run / "attempts", run / "config", run / "logs", run / "checkpoints"}
    assert needed - at_first[0] == set()


TRAINER = """
from hostcore_hookspecs import StepResult

class Trainer:
    def setup(self): pass
    def configure(self, ctx): return {"step": 0}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, state): return StepResult(metrics={"error": 1.0})
    def state_dict(self, state): return state
    def load_state_dict(self, state, payload): state.update(payload)
"""
