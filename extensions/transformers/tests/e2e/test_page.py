"""The page that shows one training under ``transformers.Trainer`` and as a job: both, as they stand there."""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from checkout import ROOT
from fork_server import ran, run
from transformers_workshop import FRAMEWORK, LLAMA

PAGE = (ROOT / "docs/how-to/coming-from-hugging-face.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```\{code-block\} \w+\n:caption: (\S+)\n\n(.*?)```", PAGE, re.DOTALL))


def test_both_have_the_same_losses_to_the_last_bit(workshop: Any, tmp_path: Path) -> None:
    shutil.copytree(workshop.path / workshop.model("llama", LLAMA), tmp_path / "tiny-llama")
    shutil.copytree(workshop.path / "tokenizer", tmp_path / "tiny-llama", dirs_exist_ok=True)
    shutil.copy(workshop.path / "train.parquet", tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    around = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    options: Any = {"imported": FRAMEWORK, "cwd": tmp_path, "env": around, "text": True}
    theirs = run([sys.executable, "theirs.py"], **options)
    theirs.check_returncode()
    ran(["run", "job.json"], **options).check_returncode()
    events = map(json.loads, (tmp_path / "runs/same/logs/events.jsonl").read_text().splitlines())
    told = [f"{one['step']} {one['metrics']['train/loss']}" for one in events if one["event"] == "metrics"]
    assert len(told) == 30
    assert told == [line for line in theirs.stdout.splitlines() if re.fullmatch(r"\d+ [\d.]+", line)]
