"""The page that shows one training as a plain PyTorch loop and as a trainer: both, as they stand there."""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from fork_server import ran, run

PAGE = (ROOT / "docs/how-to/coming-from-pytorch.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```\{code-block\} \w+\n:caption: (\S+)\n\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what ``data.py`` of the page writes."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "data.py").write_text(FILES["data.py"])
    run([sys.executable, "data.py"], cwd=folder).check_returncode()
    return folder


def logged(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "logs/events.jsonl").read_text().splitlines()]


def test_both_have_the_same_losses_to_the_last_bit(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    around = {**os.environ, "OMP_NUM_THREADS": "1"}
    loop = run([sys.executable, "loop.py"], cwd=tmp_path, env=around, text=True)
    assert loop.returncode == 0, loop.stderr
    started = ran(["run", "job.json"], cwd=tmp_path, env=around, text=True)
    assert started.returncode == 0, started.stderr
    events = [event for event in logged(tmp_path / "runs/same") if event["event"] in ("metrics", "validation")]
    names = {"metrics": "train/loss", "validation": "val/loss"}
    told = [
        f"{'validation' if event['event'] == 'validation' else event['step']} {event['metrics'][names[event['event']]]}"
        for event in events
    ]
    assert len(told) == 33
    assert told == loop.stdout.splitlines()


def test_windows_are_drawn_as_before_when_a_run_is_killed(data: Path, tmp_path: Path) -> None:
    shutil.copy(data / "tokens.bin", tmp_path)
    for name in ("windows.py", "windows.json"):
        (tmp_path / name).write_text(FILES[name])
    around = {**os.environ, "OMP_NUM_THREADS": "1"}

    def losses(run_id: str, *options: str) -> dict[int, float]:
        command = ["run", "windows.json", "--set", f"run_id={run_id}", *options]
        started = ran(command, cwd=tmp_path, env=around, text=True)
        assert started.returncode == 0, started.stderr
        metrics = [event for event in logged(tmp_path / "runs" / run_id) if event["event"] == "metrics"]
        return {event["step"]: event["metrics"]["train/loss"] for event in metrics}

    whole = losses("whole")
    assert len(set(whole.values())) == 40
    killed = [
        "--set",
        "max_restarts=2",
        "--set",
        'callbacks=[{"use": "chaos", "faults": ["kill@step=10", "kill@step=25"]}]',
    ]
    assert losses("killed", *killed) == whole
    verified = ran(["verify", "killed"], cwd=tmp_path, env=around, text=True)
    assert verified.returncode == 0, verified.stdout
    assert losses("other", "--set", "seed=2") != whole
