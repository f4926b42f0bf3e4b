"""Callbacks that work on gradients, with DDP and FSDP2 on two processes."""

import os
import subprocess
import sys
from pathlib import Path

from checkout import ROOT
from fork_server import popen


def test_clipping_and_skipping_are_the_same_on_two_ranks_as_on_one(tmp_path: Path) -> None:
    script = Path(__file__).with_name("two_ranks.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    ranks = [
        popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    try:
        for rank, process in enumerate(ranks):
            output, _ = process.communicate(timeout=600)
            assert process.returncode == 0, f"rank {rank}: {output}"
    finally:
        for process in ranks:
            process.kill()
            process.wait()
