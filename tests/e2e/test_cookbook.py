"""The projects of the cookbook, and pages that bring their data: their files as they stand, their commands in order."""

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

PAGES = ("cookbook/table", "cookbook/images", "cookbook/text", "how-to/coming-from-hydra", "how-to/coming-from-optuna")
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
    printed = follow(page, tmp_path)
    last = "\n".join(printed.values())
    expected = {
        "cookbook/table": r"0\.9\d\d of 89 are right|1\.000 of 89 are right",
        "cookbook/images": r"attempt 2 trained step \d+ to 290 again.*the same bit for bit",
        "cookbook/text": r"0\.\d\d  logging",
        "how-to/coming-from-hydra": "train/loss +0.947086.*train/loss +0.580729",
        "how-to/coming-from-optuna": r"diabetes  finished  8/8 trials",
    }[page]
    assert re.search(expected, last, re.DOTALL), last
