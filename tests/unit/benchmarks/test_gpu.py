"""`benchmarks/gpu.py`: whatever happens to it, its file names every row and why it has no values."""

import json
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from checkout import ROOT
from fork_server import run

SCRIPT = ROOT / "benchmarks/gpu.py"
CPU = ("--device", "cpu", "--quick")


def bench(folder: Path, *options: str, **environment: str) -> CompletedProcess[str]:
    command = [sys.executable, SCRIPT, *options, "--json", folder / "gpu.json"]
    return run(command, cwd=folder, env=os.environ | environment, text=True)


def rows(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "gpu.json").read_text())["rows"]
    return found


def test_rows_for_which_no_time_is_left_are_named_as_skipped(tmp_path: Path) -> None:
    done = bench(tmp_path, *CPU, "--minutes", "0.01")
    assert done.returncode == 0, done.stderr
    found, table = rows(tmp_path), (tmp_path / "gpu.md").read_text()
    assert {name.partition(":")[0] for name in found} == {
        *(f"step {size} {how}" for size in ("small", "350M") for how in ("fp32", "bf16", "bf16 compiled")),
        "checkpoint",
        "feed, 2 columns",
        "feed, 33 columns",
        "start",
    }
    for name, row in found.items():
        assert row["values"] is None
        assert row["note"] == "only a GPU can show it" or row["note"].startswith("skipped: "), name
        assert f"| {name} | - |" in table
        assert f"| {name} | - |" in done.stdout


def test_a_device_that_cannot_be_used_and_rows_that_begin_like_no_name_are_one_error(tmp_path: Path) -> None:
    for device in ("cuda", "nonsense"):
        done = bench(tmp_path, "--device", device, CUDA_VISIBLE_DEVICES="")
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"{device}: ")
        assert line.endswith("; --device cpu --quick tries the benchmark")
    done = bench(tmp_path, *CPU, "--only", "step", "--only", "stop")
    assert done.returncode == 2
    expected = "gpu.py: error: no row begins with 'stop'; there are 'step small bf16', "
    assert done.stderr.splitlines()[-1].startswith(expected)
    assert not (tmp_path / "gpu.json").exists()


def test_copies_overlap_with_kernels_where_both_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import gpu_turns

    assert gpu_turns.overlap([(0, 10), (20, 30)], [(5, 25)]) == 0.5
    assert gpu_turns.overlap([(0, 10)], [(10, 20)]) == 0
    assert gpu_turns.overlap([], [(10, 20)]) == 0
