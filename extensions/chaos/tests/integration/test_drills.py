"""Drills with real runs: what is injected happens, once, is recorded, and costs the run nothing."""

import json
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from buckets import NAME, bucket, check_copy
from checkout import ROOT
from fork_server import ran
from ledger import ENDS, Ledger, job
from waiting import wait_until

from hostcore_chaos.faults import faults_of
from hostcore_chaos.record import Record

STEPS = 12
FAILED, PREEMPTED, CANCELLED, KILLED = 1, 75, 130, -signal.SIGKILL


@attrs.frozen
class Workshop:
    """A folder with the trainer."""

    folder: Path

    def run(self, of: dict[str, Any], *options: str) -> int:
        """``hostcore run`` to its end; the exit code."""
        (self.folder / "job.json").write_text(json.dumps(of))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
        ended = ran(["run", "job.json", *options], cwd=self.folder, env=environment, text=True)
        assert "Traceback" not in ended.stderr, ended.stderr
        return int(ended.returncode)

    def ledger(self, run_id: str) -> Ledger:
        return Ledger(self.folder / "runs" / run_id)

    def injected(self, run_id: str, writer: str = "rank-0") -> list[str]:
        """The faults in the order in which they were injected."""
        lines = Record(str(self.folder / "runs" / run_id), writer).lines()
        return [line["fault"] for line in lines if "fault" in line]

    def warned(self, run_id: str) -> list[str]:
        """The warnings of the run."""
        return [event["message"] for event in self.ledger(run_id).events if event["event"] == "warning"]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    folder = tmp_path_factory.mktemp("drills")
    shutil.copy(ROOT / "tests/faults/fault_trainer.py", folder)
    return Workshop(folder)


@pytest.fixture(scope="module")
def unharmed(workshop: Workshop) -> Ledger:
    assert workshop.run(drill("unharmed"), "--in-process") == 0
    return workshop.ledger("unharmed")


def drill(run_id: str, **keys: Any) -> dict[str, Any]:
    return job(run_id, max_steps=STEPS, checkpoint_every=1, **keys)


def options(faults: Sequence[str]) -> Iterator[str]:
    for fault in faults:
        yield from ("--chaos", fault)


def test_a_run_that_everything_happens_to_comes_out_as_if_nothing_had(workshop: Workshop, unharmed: Ledger) -> None:
    # A checkpoint is committed in the background, at the latest before the next but one. A worker notices the death of
    # its supervisor some steps later.
    codes = {
        "kill@setup=1": FAILED,
        "kill@step=2": FAILED,
        "sigterm@step=3": PREEMPTED,
        "kill@load_state_dict=1": FAILED,
        "sigusr1@step=4": PREEMPTED,
        "kill@checkpoint=5": FAILED,
        "hang@step=7": FAILED,
        "sigint@step=8": CANCELLED,
        "kill-all@saved=9": KILLED,
        "kill-supervisor@step=12": KILLED,
    }
    ledger, found = workshop.ledger("all"), []
    while not found or found[-1] != 0:
        assert len(found) <= len(codes), "a fault is injected once"
        found.append(workshop.run(drill("all", stall_seconds=1, grace_seconds=1), *options([*codes])))
        ended = lambda: {event["event"] for event in ledger.told} & ENDS  # noqa: E731
        if workshop.injected("all")[-1:] == ["kill-supervisor@step=12"]:
            wait_until(ended, "the worker to write a checkpoint and to end")
        ledger.check_checkpoints(keep=3)

    assert workshop.injected("all") == [*codes]
    assert found == [*codes.values(), 0]
    assert ledger.losses == unharmed.losses
    assert ledger.weights == unharmed.weights
    ledger.check_digest()
    ledger.check_numbers()
    told = [one for one in workshop.warned("all") if "injected" in one]
    assert sorted({one.split()[2] for one in told}) == sorted(codes), "each is in the log of the run"


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


def test_an_outage_of_the_store_loses_nothing(workshop: Workshop, unharmed: Ledger) -> None:
    with bucket() as store:
        access = {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{store.port}"}
        uploader = {"use": "fsspec", "uri": f"s3://{NAME}/base", "storage_options": access}
        outage = {**drill("outage", uploaders=[uploader]), "checkpoint_every": 6}
        assert workshop.run(outage, "--chaos", "store-down@0s..2s") == 0
        check_copy(store, "base/outage/framework=fault_trainer-Trainer", workshop.ledger("outage").path)
    assert workshop.injected("outage", "uploads") == ["store-down@0s..2s"]
    assert workshop.ledger("outage").losses == unharmed.losses
