"""The page that shows one training with Lightning's Trainer and as a job: both, as they stand there."""

import json
import os
import subprocess
import sys
from pathlib import Path

from checkout import ROOT
from fork_server import hostcore
from tutorial_reader import files_of

PAGE = (ROOT / "docs/how-to/coming-from-lightning.md").read_text(encoding="utf-8")
FILES = dict(files_of(PAGE))


def test_both_have_the_same_losses_to_the_last_bit(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    around = {**os.environ, "OMP_NUM_THREADS": "1"}
    own = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=around, capture_output=True, text=True, check=True
    )
    started = hostcore(["run", "job.json"], cwd=tmp_path, env=around, stdout=-1, stderr=-1, text=True)
    _, said = started.communicate()
    assert started.returncode == 0, said
    lines = (tmp_path / "runs/same/logs/events.jsonl").read_text().splitlines()
    told = []
    for event in map(json.loads, lines):
        if event["event"] == "metrics":
            told.append(f"{event['step']} {event['metrics']['train/loss']}")
        elif event["event"] == "validation":
            told.append(f"validation {event['metrics']['val/loss']} {event['metrics']['val/accuracy']}")
    assert len(told) == 39
    assert told == own.stdout.splitlines()
