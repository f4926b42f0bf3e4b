"""A disk that is full, at the start and in the middle of a run: a real one, small, in a mount namespace of its own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

TRAINER = """
import os
import time
import torch
from hostcore_hookspecs import StepResult

class Trainer:
    def setup(self): pass
    def configure(self, ctx):
        return {"weights": torch.zeros(ctx.hyperparams["weights"]), "step": 0}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, state, ctx):
        state["weights"] += 1
        state["step"] += 1
        if state["step"] == ctx.hyperparams.get("fill_at") and not os.path.exists("filled"):
            open("filled", "x").close()
            while not os.path.exists(ctx.run_dir + "/checkpoints/step-000005.json"):
                time.sleep(0.01)  # it is written in the background
            fill(os.environ["HOSTCORE_RUNS_DIR"] + "/filler")
        return StepResult(metrics={"loss": 1 / state["step"]})
    def state_dict(self, state): return state
    def load_state_dict(self, state, payload): state.update(payload)

def fill(path):
    with open(path, "wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
"""

#: Runs the job in a folder on a small disk; then makes room, and runs it again. Copies what is there each time.
SCRIPT = """
set -eu
disk=$1 size=$2 copies=$3
shift 3
mount -t tmpfs -o "size=$size" tmpfs "$disk"
mkdir "$disk/runs"
export HOSTCORE_RUNS_DIR="$disk/runs"
for round in first second; do
    mkdir "$copies/$round"
    set +e
    "$@" >"$copies/$round/out" 2>"$copies/$round/err"
    echo $? >"$copies/$round/code"
    set -e
    cp -r "$disk/runs" "$copies/$round/runs"
    rm -f "$disk/runs/filler"
    mount -o remount,size=64M "$disk"
done
"""

OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    mount = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not can_mount(), reason="mounting in a namespace is not allowed here")


@attrs.frozen
class Round:
    """One start of the job on the small disk, and what it left there."""

    folder: Path

    @property
    def code(self) -> int:
        return int((self.folder / "code").read_text())

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def run(self) -> Path:
        return self.folder / "runs/full"

    @property
    def result(self) -> dict[str, Any]:
        return dict(json.loads((self.run / "result.json").read_text()))

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run / "logs/events.jsonl").read_text().splitlines()]

    def assert_clear(self) -> None:
        assert "Traceback" not in self.err + self.out
        assert "No space left on device" in self.err
        assert "make room" in self.err.lower()


@pytest.fixture
def on_disk(tmp_path: Path) -> Any:
    """Runs a job on a disk of a size, and again after it has grown."""

    def run(size: str, **hyperparams: int) -> tuple[Round, Round]:
        (tmp_path / "mine.py").write_text(TRAINER)
        job = {
            "trainer": "mine:Trainer",
            "run_id": "full",
            "max_steps": 20,
            "metric_every": 1,
            "checkpoint_every": 5,
            "hyperparams": {"weights": 10, **hyperparams},
            "terminal": False,
        }
        (tmp_path / "job.json").write_text(json.dumps(job))
        for name in ("disk", "copies"):
            (tmp_path / name).mkdir()
        script = [*OWN_MOUNTS, "bash", "-c", SCRIPT, "bash", str(tmp_path / "disk"), size, str(tmp_path / "copies")]
        command = [sys.executable, "-P", "-m", "hostcore", "run", "job.json"]
        subprocess.run([*script, *command], cwd=tmp_path, check=True, stdin=subprocess.DEVNULL)
        return Round(tmp_path / "copies/first"), Round(tmp_path / "copies/second")

    return run


def test_without_room_for_a_run_directory_nothing_is_started_and_nothing_stays(on_disk: Any) -> None:
    first, second = on_disk("4k")
    assert first.code == 2
    first.assert_clear()
    assert first.err.startswith("error: the run directory cannot be written")
    assert "HOSTCORE_RUNS_DIR" in first.err
    assert not first.run.exists()
    assert second.code == 0


def test_a_checkpoint_that_does_not_fit_is_a_warning_and_the_last_one_a_failure(on_disk: Any) -> None:
    first, second = on_disk("512k", weights=250_000)
    assert first.code == 1
    first.assert_clear()
    assert "could not be written" in first.err
    warnings = [event for event in first.events if event["event"] == "warning"]
    assert [event["step"] for event in warnings if event["code"] == "checkpoint.not_written"] == [5, 10, 15]
    assert first.events[-1]["event"] == "run_failed"
    assert (first.result["status"], first.result["step"]) == ("failed", 20)
    assert first.result["final_checkpoint"] is None
    assert [path.name for path in (first.run / "checkpoints").iterdir()] == []
    assert second.code == 0
    assert (second.result["attempt"], second.result["step"]) == (2, 20)


def test_a_disk_that_fills_up_fails_the_run_and_keeps_its_checkpoints(on_disk: Any) -> None:
    first, second = on_disk("8M", fill_at=8)
    assert first.code == 1
    first.assert_clear()
    result = first.result
    assert (result["status"], result["exit_code"]) == ("failed", 1)
    assert result["final_checkpoint"] == "checkpoints/step-000005"
    assert "No space left on device" in result["error"]["message"]
    assert result["error"]["hint"]
    assert not (first.run / "lease.json").exists()
    assert (first.run / "checkpoints/step-000005.json").is_file()
    assert [event["seq"] for event in first.events] == list(range(1, len(first.events) + 1))

    assert (second.code, second.result["step"]) == (0, 20)
    assert "run_resumed" in [event["event"] for event in second.events]
    assert [event["seq"] for event in second.events] == list(range(1, len(second.events) + 1))
    assert [event["event"] for event in second.events].count("run_submitted") == 2
