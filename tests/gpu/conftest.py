"""Runs on a GPU; each test that takes ``device`` is made on the CPU too, as far as it goes there.

``pytest tests/gpu -k cuda`` on a machine with a GPU: one after the other, since they look at its memory. Elsewhere
they are skipped for one reason, and the summary names them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import ROOT
from command_line import COMMAND, Said, said_by
from fork_server import hostcore
from waiting import wait_until

HERE = Path(__file__).parent
REASON = "there is no CUDA device here"
#: What a driver may keep or take back by itself, in MiB.
SLACK = 64


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make each test of a device for the CPU and for CUDA."""
    if "device" in metafunc.fixturenames:
        metafunc.parametrize(
            "device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not _has_gpu(), reason=REASON))]
        )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name what was not made for want of a GPU, in one line."""
    skipped = [one for one in terminalreporter.stats.get("skipped", ()) if REASON in str(one.longrepr)]
    if skipped:
        names = ", ".join(sorted(one.nodeid.rpartition("::")[2].removesuffix("[cuda]") for one in skipped))
        terminalreporter.write_line(f"{len(skipped)} tests need a GPU, and {REASON}: {names}")


@attrs.frozen
class Place:
    """A folder with the trainer, and a device for its jobs."""

    path: Path
    device: str
    environment: dict[str, str]
    started: list[subprocess.Popen[str]] = attrs.field(factory=list)

    @property
    def is_gpu(self) -> bool:
        return self.device == "cuda"

    def job(self, run_id: str, **keys: Any) -> Path:
        """Write a job; hyperparameters of the trainer are among the keys."""
        own = {"width", "dropout", "kills", "asserts_at", "fits", "row_bytes", "until", "never_waits"}
        hyperparams = {name: keys.pop(name) for name in own & keys.keys()}
        job = {
            "trainer": "gpu_trainer:Trainer",
            "dataset": {"source": "mock", "num_rows": 320, "num_shards": 4, "batch_size": 16, "shuffle": True},
            "max_steps": 30,
            "metric_every": 5,
            "checkpoint_every": 5,
            "device": "cuda:0" if self.is_gpu else "cpu",
            "run_id": run_id,
            "terminal": False,
            **({"hyperparams": hyperparams} if hyperparams else {}),
            **keys,
        }
        path = self.path / f"{run_id}.json"
        path.write_text(json.dumps(job))
        return path

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start the command: on the CPU a fork, as elsewhere; for a GPU a new interpreter, as users do."""
        options: dict[str, Any] = {"cwd": self.path, "env": self.environment, "text": True}
        options |= {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if self.is_gpu:
            process = subprocess.Popen([COMMAND, *map(str, arguments)], **options)
        else:
            process = hostcore(arguments, **options)
        self.started.append(process)
        return process

    def command(self, *arguments: str | Path) -> Said:
        return said_by(self.start(*arguments))

    def succeed(self, run_id: str, **keys: Any) -> None:
        said = self.command("run", self.job(run_id, **keys))
        assert said.code == 0, said

    def wait_for(self, name: str, process: subprocess.Popen[str]) -> Path:
        """Wait for a file that a run writes."""
        path = self.path / name
        wait_until(lambda: path.exists() or process.poll() is not None, name)
        assert process.poll() is None, said_by(process)
        return path

    def result(self, run_id: str) -> dict[str, Any]:
        return orjson.loads((self.path / "runs" / run_id / "result.json").read_bytes())

    def events(self, run_id: str, name: str = "") -> list[dict[str, Any]]:
        lines = (self.path / "runs" / run_id / "logs/events.jsonl").read_bytes().splitlines()
        return [event for event in map(orjson.loads, lines) if name in ("", event["event"])]

    def losses(self, run_id: str, name: str = "train/loss") -> dict[int, float]:
        return {event["step"]: event["metrics"][name] for event in self.events(run_id, "metrics")}

    def checkpoint(self, run_id: str, step: int = 30) -> Path:
        return self.path / "runs" / run_id / f"checkpoints/step-{step:06d}"

    def state(self, run_id: str, step: int = 30) -> dict[str, bytes]:
        """The trainer's state in a checkpoint, as it lies there."""
        return {path.name: path.read_bytes() for path in self.checkpoint(run_id, step).glob("state.*")}

    def with_gpu(self) -> dict[str, Any]:
        """Pretend one GPU, where there is none; what a job needs for it."""
        if self.is_gpu:
            return {}
        shutil.copy(HERE.parent / "integration/runs/pretended_cuda.py", self.path)
        tools = self.path / "tools"
        tools.mkdir()
        (tools / "nvidia-smi").write_text("#!/bin/sh\necho 0, GPU-aaaa\n")
        (tools / "nvidia-smi").chmod(0o755)
        self.environment["PATH"] = f"{tools}{os.pathsep}{self.environment['PATH']}"
        return {"callbacks": ["pretended_cuda:Sees"]}

    def memory(self) -> int:
        """Return the GPU memory in use, in MiB; 0 on the CPU."""
        if not self.is_gpu:
            return 0
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
        return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout)

    def require_free(self, before: int) -> None:
        """Wait until the GPU's memory is what it was: the driver frees that of a process a moment after its end."""
        wait_until(lambda: self.memory() <= before + SLACK, "the GPU's memory is free", seconds=60)


@pytest.fixture
def place(device: str, tmp_path: Path) -> Iterator[Place]:
    shutil.copy(HERE / "gpu_trainer.py", tmp_path)
    around = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
    around |= {"HOSTCORE_DEVICES_DIR": str(tmp_path / "leases"), "HF_HUB_OFFLINE": "1"}
    made = Place(tmp_path, device, around)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.fixture
def linear_job() -> Any:
    """``linear_job(folder)``: a job of the trainer ``process`` there, which computes on the CPU."""

    def write(folder: Path) -> str:
        table = {name: [float(row % (3 + place)) for row in range(64)] for place, name in enumerate("aby")}
        pq.write_table(pa.table(table), folder / "rows.parquet")
        settings = {"columns": ["a", "b"], "target": "y", "learning_rate": 0.01}
        program = ROOT / "example_trainers/linear/python/linear.py"
        job = {
            "trainer": "process",
            "run_id": "linear",
            "hyperparams": {"command": [sys.executable, str(program)], "cwd": ".", "settings": settings},
            "dataset": {"parquet_paths": ["rows.parquet"], "batch_size": 16},
            "epochs": 2,
            "device": "cpu",
            "terminal": False,
        }
        (folder / "linear.json").write_text(json.dumps(job))
        return "linear.json"

    return write
