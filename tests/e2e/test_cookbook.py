"""The projects of the cookbook, and pages that bring their data: their files as they stand, their commands in order."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from checkout import ROOT
from fork_server import ran, run
from tutorial_reader import files_of

#: What the commands of a page print.
PAGES = {
    "cookbook/table": r"(0\.9\d\d|1\.000) of 89 are right",
    "cookbook/images": r"attempt 2 trained step \d+ to 290 again.*the same bit for bit",
    "cookbook/text": r"0\.\d\d  logging",
    "how-to/coming-from": "succeeded",
    "how-to/coming-from-optuna": "finished  8/8 trials",
}
#: What a page has a run do to itself.
KILLED = "--chaos kill@"
#: Needs Hydra, whose parser excludes another library of the tests.
HYDRA = "python train.py"


def answer(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    program, *arguments = shlex.split(command)
    around = {**os.environ, "OMP_NUM_THREADS": "1"}
    if program == "hostcore":
        return ran(arguments, cwd=folder, env=around, text=True)
    assert program == "python"
    return run([sys.executable, *arguments], cwd=folder, env=around, text=True)


def follow(page: str, folder: Path) -> Mapping[str, str]:
    """Make the files of a page, and enter its commands; what each has printed."""
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    for name, content in files_of(text):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    printed = {}
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for command in re.findall(r"^\$ (.*)", block, re.MULTILINE):
            if command.startswith(HYDRA):
                continue
            ended = answer(command, folder)
            assert ended.returncode == (1 if KILLED in command else 0), (command, ended.stdout, ended.stderr)
            printed[command] = ended.stdout + ended.stderr
    return printed


@pytest.mark.parametrize("page", PAGES)
def test_a_reader_who_follows_a_page_gets_what_it_shows(page: str, tmp_path: Path) -> None:
    printed = "\n".join(follow(page, tmp_path).values())
    assert re.search(PAGES[page], printed, re.DOTALL), printed


def test_runs_end_with_the_losses_that_hydra_s_script_has_printed_to_the_last_bit(tmp_path: Path) -> None:
    printed = follow("how-to/coming-from-hydra", tmp_path)
    assert "finished  4/4 trials" in printed["hostcore sweep sweep.json"]
    text = (ROOT / "docs/how-to/coming-from-hydra.md").read_text(encoding="utf-8")
    for run_id in ("adam", "sgd"):
        lines = (tmp_path / f"runs/{run_id}/logs/events.jsonl").read_text().splitlines()
        losses = [event["metrics"]["train/loss"] for event in map(json.loads, lines) if event["event"] == "metrics"]
        assert f"\n{losses[-1]}\n" in text
