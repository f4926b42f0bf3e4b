"""Drills with real runs: what is injected happens, once, and is recorded."""

import json
import shutil

from checkout import ROOT
from drill_runs import STEPS, Workshop, drill, options
from fork_server import ran
from ledger import Ledger

from hostcore_chaos.faults import faults_of

FAILED, PREEMPTED = 1, 75


def test_a_kill_at_a_checkpoint_comes_between_the_files_and_the_record(workshop: Workshop) -> None:
    assert workshop.run(drill("commit"), *options(["kill@checkpoint=2"])) == FAILED
    checkpoints = workshop.ledger("commit").checkpoints
    assert (checkpoints / "step-000002").is_dir()
    assert not (checkpoints / "step-000002.json").exists()


def test_a_full_disk_costs_one_checkpoint(workshop: Workshop, unharmed: Ledger) -> None:
    faults = options(["disk-full@checkpoint=2", "disk-full@checkpoint=4"])
    assert workshop.run(drill("full", keep_checkpoints=100), *faults, "--in-process") == 0
    ledger = workshop.ledger("full")
    assert ledger.steps == [1, 3, *range(5, STEPS + 1)]
    assert ledger.losses == unharmed.losses


def test_a_range_is_drawn_to_a_step_that_the_log_tells(workshop: Workshop) -> None:
    text = "kill@step=2..10"
    (fault,) = faults_of([text])
    assert workshop.run(drill("drawn"), "--chaos", text, "--chaos-seed", "3") == FAILED
    record = json.loads((workshop.ledger("drawn").path / "config/run.json").read_text())
    assert record["job"]["callbacks"][-1] == {"use": "hostcore-chaos/chaos", "faults": [text], "seed": 3}
    (told,) = workshop.warned("drawn")
    assert f"injected fault {text} (step={fault.number(3, 0)} was drawn)" in told


def test_a_fault_of_one_rank_is_injected_there(workshop: Workshop) -> None:
    shutil.copy(ROOT / "tests/e2e/ranks/pair_trainer.py", workshop.folder)
    two = {"trainer": "pair_trainer:Trainer", "run_id": "ranks", "max_steps": 5, "devices": ["cpu", "cpu"]}
    assert workshop.run({**two, "terminal": False}, "--chaos", "kill@step=2,rank=1") == FAILED
    assert workshop.injected("ranks", "rank-1") == ["kill@step=2,rank=1"]
    assert workshop.injected("ranks", "rank-0") == []
    result = workshop.ledger("ranks").result
    assert result is not None
    assert result["error"]["rank"] == 1


def test_every_attempt_meets_a_fault_that_says_so(workshop: Workshop) -> None:
    for _ in range(2):
        assert workshop.run(drill("every"), "--chaos", "sigterm@setup=1,every") == PREEMPTED
    assert workshop.injected("every") == 2 * ["sigterm@setup=1,every"]


def test_a_fault_that_was_never_met_is_told_at_the_end(workshop: Workshop) -> None:
    assert workshop.run(drill("late"), "--chaos", "kill@step=1000", "--in-process") == 0
    (told,) = workshop.warned("late")
    assert told.startswith("the fault kill@step=1000 was never injected: the run has not come there")


def test_what_is_wrong_is_told_before_anything_begins(workshop: Workshop) -> None:
    (workshop.folder / "wrong.json").write_text(json.dumps(drill("wrong")))
    ended = ran(
        ["run", "wrong.json", *options(["explode@step=1", "store-down@step=1"])], cwd=workshop.folder, text=True
    )
    assert ended.returncode == 2
    assert "there is no fault 'explode'" in ended.stderr
    assert "'step=1' is no time" in ended.stderr
    assert not workshop.ledger("wrong").path.exists()


def test_an_outage_of_a_store_that_the_job_does_not_have_is_refused(workshop: Workshop) -> None:
    (workshop.folder / "storeless.json").write_text(json.dumps(drill("storeless")))
    ended = ran(["run", "storeless.json", "--chaos", "store-down@0s..2s"], cwd=workshop.folder, text=True)
    assert ended.returncode == 2
    assert "uploader chaos is around the other uploaders of the job, and there is none" in ended.stderr
    assert "from: --chaos" in ended.stderr
    assert not workshop.ledger("storeless").path.exists()
