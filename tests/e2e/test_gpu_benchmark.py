"""`benchmarks/gpu.py` where a row fails, or it is killed; `test_gpu_bundle.py` has all of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from checkout import ROOT
from waiting import wait_until

SCRIPT = ROOT / "benchmarks/gpu.py"
CPU = ("--device", "cpu", "--quick")


def rows(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "gpu.json").read_text())["rows"]
    return found


def test_a_row_that_fails_says_why_and_the_next_is_measured(tmp_path: Path) -> None:
    (tmp_path / "char_lm").mkdir()
    (tmp_path / "char_lm/__init__.py").write_text("")
    (tmp_path / "char_lm/model.py").write_text("raise RuntimeError('no such model')")
    options = ("--minutes", "60", "--only", "step small fp32", "--only", "feed, 2")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, SCRIPT, *CPU, *options, "--json", "gpu.json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    found = rows(tmp_path)
    assert found["step small fp32: ratio"]["values"] is None
    assert found["step small fp32: ratio"]["note"].startswith("failed: hostcore run ended with 1: ")
    assert "no such model" in found["step small fp32: ratio"]["note"]
    assert found["feed, 2 columns: ratio"]["values"]


def test_killed_behind_a_row_it_has_left_that_row(tmp_path: Path) -> None:
    options = ("--minutes", "60", "--only", "step small fp32", "--only", "start", "--json", "gpu.json")
    command = [sys.executable, SCRIPT, *CPU, *options]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        wait_until((tmp_path / "gpu.json").exists, "the first row")
        process.kill()
    found = rows(tmp_path)
    assert len(found["start: hostcore"]["values"]) == 2
    assert found["step small fp32: ratio"] == {
        "values": None,
        "unit": "of the plain loop",
        "less_is_better": True,
        "note": "not reached",
    }
