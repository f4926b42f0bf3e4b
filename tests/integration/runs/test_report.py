"""``hostcore report`` on real runs: what it shows is what they wrote."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

import hostcore
from hostcore.cli import cli

JOB: dict[str, Any] = {
    "trainer": "small_trainer:Trainer",
    "device": "cpu",
    "terminal": False,
    "callbacks": ["small_trainer:Loss"],
    "metric_every": 1,
    "checkpoint_every": 5,
    "keep_checkpoints": 2,
    "dataset": {"source": "mock", "num_rows": 70, "batch_size": 10, "shuffle": True},
}


@pytest.fixture(scope="module")
def report(here: Path) -> Callable[[str], str]:
    """``report("a")``: the page of a run."""

    def call(run_id: str) -> str:
        result = CliRunner().invoke(cli, ["report", run_id, "--json"], catch_exceptions=False)
        return Path(json.loads(result.stdout)["report"]).read_text()

    return call


def curve(page: str, name: str) -> dict[int, float]:
    """The points of a curve, as the script of the page gets them."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    (found,) = [one for plot in json.loads(text)["plots"] for one in plot["curves"] if one["name"] == name]
    steps = [sum(found["steps"][: count + 1]) for count in range(len(found["steps"]))]
    return dict(zip(steps, found["values"], strict=True))


def test_the_curve_of_a_run_that_was_extended_is_that_of_its_log(here: Path, report: Callable) -> None:
    for max_steps in (12, 23):
        hostcore.run({**JOB, "run_id": "longer", "max_steps": max_steps})
    page = report("longer")
    events = [orjson.loads(line) for line in (here / "longer/logs/events.jsonl").read_bytes().splitlines()]
    measured = {one["step"]: one["metrics"]["train/loss"] for one in events if one["event"] == "metrics"}
    assert len(measured) == 23
    assert curve(page, "train/loss") == {step: float(f"{value:.6g}") for step, value in measured.items()}
    assert '"attempts":[[2,12]]' in page
    assert page.count(">kept<") == len(list((here / "longer/checkpoints").glob("*.json")))
    assert page.count(">removed<") > 0


def test_a_run_that_failed_shows_its_own_traceback_and_how_to_go_on(here: Path, report: Callable) -> None:
    job = {**JOB, "run_id": "exploded", "max_steps": 12, "hyperparams": {"how": "raise", "at": 8}}
    assert hostcore.run(job).status == "failed"
    page = report("exploded")
    assert "ValueError" in page
    assert "the loss has exploded" in page
    assert "in _deep" in page
    assert "hostcore resume exploded" in page


def test_a_run_without_metrics_has_a_report_without_curves(here: Path, report: Callable) -> None:
    job = {**JOB, "run_id": "bare", "max_steps": 2, "metric_every": 0, "callbacks": []}
    assert hostcore.run(job).status == "succeeded"
    page = report("bare")
    assert 'id="curves"' not in page
    assert 'id="environment"' in page
    assert "small_trainer:Trainer" in page
