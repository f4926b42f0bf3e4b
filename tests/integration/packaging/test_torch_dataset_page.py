"""The page that trains on a torch Dataset: its files as they stand, killed and with other processes."""

import json
import os
import re
from pathlib import Path

import pytest
from checkout import ROOT
from fork_server import ran

PAGE = (ROOT / "docs/how-to/torch-dataset.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```\{code-block\} \w+\n:caption: (\S+)\n\n(.*?)```", PAGE, re.DOTALL))
AROUND = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(autouse=True)
def place(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)


def losses(folder: Path, run_id: str, *options: str) -> dict[tuple[str, int], float]:
    started = ran(["run", "flowers.json", "--set", f"run_id={run_id}", *options], cwd=folder, env=AROUND, text=True)
    assert started.returncode == 0, started.stderr
    lines = (folder / "runs" / run_id / "logs/events.jsonl").read_text().splitlines()
    return {
        (event["event"], event["step"]): event["metrics"][name]
        for event in map(json.loads, lines)
        for name in event.get("metrics", {})
        if event["event"] in ("metrics", "validation")
    }


def test_items_and_their_draws_are_the_same_for_any_processes_and_after_kills(tmp_path: Path) -> None:
    whole = losses(tmp_path, "whole")
    assert len(whole) == 39
    assert len(set(whole.values())) == 39
    killed = losses(
        tmp_path,
        "killed",
        *("--set", "max_restarts=2", "--set", "dataset.workers=2"),
        *("--set", 'callbacks=[{"use": "chaos", "faults": ["kill@step=7", "kill@step=18"]}]'),
    )
    assert killed == whole
    verified = ran(["verify", "killed"], cwd=tmp_path, env=AROUND, text=True)
    assert verified.returncode == 0, verified.stdout
    assert losses(tmp_path, "other", "--set", "dataset.init.noise=0.2") != whole


def test_a_fraction_of_the_items_is_held_out(tmp_path: Path) -> None:
    found = losses(tmp_path, "fraction", "--set", 'validation={"fraction": 0.2}', "--set", "epochs=1")
    assert 0 < sum(kind == "metrics" for kind, _ in found) < 12
    assert sum(kind == "validation" for kind, _ in found) == 1


@pytest.mark.parametrize(
    ("option", "pointer", "message"),
    [
        ("dataset.init={}", "/dataset/init", "missing a required argument: 'size'"),
        ('dataset={"source": "torch", "use": "flower_trainer:Trainer"}', "/dataset/use", "without __len__"),
        ("dataset.use=flowers:Roses", "/dataset/use", "Roses"),
        ('dataset.columns=["image"]', "/dataset/columns/0", "no column 'image'"),
        (
            'dataset={"of": [{"name": "a", "source": "torch", "use": "flowers:Flowers", "init": {"size": 96}}]}',
            "/dataset",
            "name one Dataset that has the items of all",
        ),
    ],
)
def test_mistakes_are_reported_with_their_place(option: str, pointer: str, message: str, tmp_path: Path) -> None:
    ended = ran(["run", "flowers.json", "--quiet", "--set", option], cwd=tmp_path, env=AROUND, text=True)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False), ended.stderr
    assert f"at: {pointer}\n" in ended.stderr
    assert message in ended.stderr
    assert not (tmp_path / "runs/flowers").exists()
