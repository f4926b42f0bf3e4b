"""A worker that the kernel kills for lack of memory is named so, with sizes, and its run goes on with more."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from command_line import COMMAND
from ledger import ENDS, Ledger
from memory_group import MemoryGroup, NoControlGroup, is_required, memory_group

GIB = 2**30
TRAINER = """
import os
import torch
from hostcore_hookspecs import StepResult

class Trainer:
    def setup(self):
        torch.set_num_threads(1)
    def configure(self, ctx):
        return {"x": torch.tensor(3.0)}
    def prepare_batch(self, raw_batch):
        return raw_batch
    def train_step(self, state, ctx):
        if ctx.run_state.step == 2 and os.environ.get("HUNGRY"):
            self._kept = [torch.ones(2**22) for _ in range(256)]  # 16 MiB each
        state["x"] = (state["x"] + 2 / state["x"]) / 2
        return StepResult(metrics={"error": (state["x"] ** 2 - 2) ** 2})
    def state_dict(self, state):
        return state
    def load_state_dict(self, state, payload):
        state.update(payload)
"""


@pytest.fixture(scope="module")
def group() -> Iterator[MemoryGroup]:
    """One that may take a gibibyte."""
    try:
        with memory_group(GIB) as made:
            yield made
    except NoControlGroup as error:
        if is_required():
            pytest.fail(f"{error}; a container needs --privileged for this, or a writable /sys/fs/cgroup")
        pytest.skip(str(error))


@attrs.frozen
class Killed:
    """A run whose worker was killed."""

    folder: Path
    ledger: Ledger
    code: int
    err: str


@pytest.fixture(scope="module")
def killed(group: MemoryGroup, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    folder = tmp_path_factory.mktemp("memory")
    (folder / "mine.py").write_text(TRAINER)
    job = {"trainer": "mine:Trainer", "run_id": "a", "max_steps": 6, "checkpoint_every": 1, "metric_every": 1}
    (folder / "job.json").write_text(json.dumps({**job, "device": "cpu", "terminal": False}))
    done = run(folder, *group.command(COMMAND, "run", "job.json"), HUNGRY="yes")
    return Killed(folder, Ledger(folder / "runs" / "a"), done.returncode, done.stderr)


def run(folder: Path, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
    return subprocess.run(
        command,
        cwd=folder,
        env={**clean, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_is_named_out_of_memory_with_what_it_held_and_what_it_may(killed: Killed) -> None:
    assert killed.code == 1
    result = killed.ledger.result
    assert result is not None
    assert (result["status"], result["exit_code"]) == ("failed", 1)
    error = result["error"]
    assert error["type"] == "OutOfMemory"
    held, allowed = map(float, re.findall(r"([\d.]+) GiB", error["message"]))
    assert allowed == 1.0
    assert 0.3 < held < 1.5, "pages of libraries count too"
    assert "batch" in error["hint"]
    assert f"error: OutOfMemory: {error['message']}" in killed.err
    assert "Traceback" not in killed.err


def test_its_supervisor_survives_and_writes_the_one_end(killed: Killed) -> None:
    assert [event["event"] for event in killed.ledger.events if event["event"] in ENDS] == ["run_failed"]
    assert killed.ledger.events[-1]["event"] == "run_failed"
    killed.ledger.check_numbers()
    assert not (killed.ledger.path / "lease.json").exists()


def test_with_more_memory_the_run_goes_on_from_its_newest_checkpoint(killed: Killed, tmp_path: Path) -> None:
    killed.ledger.check_checkpoints(keep=3)
    folder = Path(shutil.copytree(killed.folder, tmp_path / "again"))  # the other tests may come later
    again = run(folder, COMMAND, "run", "job.json")
    assert again.returncode == 0, again.stderr
    ledger = Ledger(folder / "runs" / "a")
    resumed = [event["step"] for event in ledger.events if event["event"] == "run_resumed"]
    assert resumed in ([1], [2]), "the checkpoint of step 2 may have been on its way"
    assert ledger.result is not None
    assert ledger.result["step"] == 6
