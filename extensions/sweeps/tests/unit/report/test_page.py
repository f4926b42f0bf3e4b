"""The page of ``hostcore sweep report``: complete, and safe whatever the sweep has brought along."""

import html
import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
import recorded_sweep
from click.testing import CliRunner

from hostcore.cli import cli
from hostcore_sweeps.report.page import write_page
from hostcore_sweeps.status import read_status

HOSTILE = "</script><script>alert(1)</script><img onerror>\"'&\u202e\x1b ünï"
NOW = 1_795_260_000_000


def page_of(folder: Any) -> str:
    return write_page(read_status(folder), now=NOW)


def text_of(page: str, section: str) -> str:
    """The words of a section."""
    inside = page.partition(f'<section id="{section}"')[2].partition("</section>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", inside.partition(">")[2])).split())


@pytest.fixture
def page(tmp_path: Path) -> str:
    return page_of(recorded_sweep.record(tmp_path, recorded_sweep.whole_sweep()))


def test_it_tells_of_every_trial_and_links_the_best(page: str) -> None:
    assert page.count('<tr id="trial-') == 24
    assert '<a href="#trial-3">trial 3</a>' in page
    assert '<tr id="trial-3" data-trial="3" class="best">' in page
    assert "24 of 24: 16 complete, 6 pruned, 2 failed" in page
    told = text_of(page, "trials")
    assert "failed: ValueError: the loss has exploded" in told
    assert "recorded-0017" in told
    for section in ("history", "trials", "parallel", "importance", "steps", "sweep"):
        assert f'<section id="{section}"' in page


@pytest.mark.parametrize(("state", "looks"), [("failed", "failed"), ("complete", "finished")])
def test_a_sweep_none_of_whose_trials_is_complete_looks_failed(tmp_path: Path, state: Any, looks: str) -> None:
    pasts = [attrs.evolve(one, state=state) for one in recorded_sweep.whole_sweep()[:2]]
    folder = recorded_sweep.record(tmp_path, pasts, limits={"trials": 2})
    assert f'<span class="status {looks}">finished</span>' in page_of(folder)


def test_it_needs_nothing_else_and_executes_nothing_that_a_sweep_brings(tmp_path: Path) -> None:
    pointer = f"/hyperparams/{HOSTILE.replace('/', '~1')}"
    space = {pointer: {"choice": [HOSTILE, "b"]}, "/hyperparams/layers": {"integer": [1, 6]}}
    past = recorded_sweep.Past(
        values={pointer: HOSTILE, "/hyperparams/layers": 1},
        reports={1: {HOSTILE: 1.0}},
        objective={HOSTILE: 1.0},
        reason=HOSTILE,
    )
    objective = {"metric": HOSTILE, "mode": "min"}
    pasts = [past, attrs.evolve(past, state="failed", objective={})]
    page = page_of(recorded_sweep.record(tmp_path, pasts, space=space, objective=objective))
    assert page.count("<script>") == page.count("</script>") == 1
    assert "<img" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert "default-src &#39;none&#39;" in page
    assert re.findall(r'(?:src|href)="(?!#|data:)', page) == []
    assert "alert(1)" in text_of(page, "trials")


def test_a_sweep_without_trials_has_a_page(tmp_path: Path) -> None:
    page = page_of(recorded_sweep.record(tmp_path, [], ends=False))
    assert "0 of 24" in page
    assert '<section id="sweep"' in page
    assert '<section id="trials"' not in page


def test_a_trial_that_began_from_another_names_it(tmp_path: Path) -> None:
    values = {"/hyperparams/learning_rate": 0.1}
    pasts = [recorded_sweep.Past(values=values, parent=parent, objective={"val/loss": 1.0}) for parent in (None, 0)]
    page = page_of(recorded_sweep.record(tmp_path, pasts))
    assert '<th scope="col" class="number">From</th>' in page
    assert '<td class="number"><a href="#trial-0">0</a></td>' in page


def test_of_several_objectives_it_shows_what_is_traded(tmp_path: Path) -> None:
    objective = [{"metric": "val/loss", "mode": "min"}, {"metric": "accuracy", "mode": "max"}]
    values = {"/hyperparams/learning_rate": 0.1}
    pasts = [recorded_sweep.Past(values=values, objective={"val/loss": x, "accuracy": x / 2}) for x in (1.0, 2.0)]
    page = page_of(recorded_sweep.record(tmp_path, pasts, objective=objective))
    assert "Trade-offs" in page
    assert "none is better than these in all objectives" in page
    assert page.count('class="best"') == 2


def test_the_command_writes_one_file_and_replaces_only_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOSTCORE_SWEEPS_DIR", str(tmp_path))
    recorded_sweep.record(tmp_path, recorded_sweep.whole_sweep())
    call = CliRunner().invoke
    for _ in range(2):
        done = call(cli, ["sweep", "report", "recorded"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    assert "24 of 24: 16 complete" in done.output
    assert (tmp_path / "recorded.html").stat().st_size < 200_000
    told = json.loads(call(cli, ["sweep", "report", "recorded", "--json"]).output)
    assert (told["sweep_id"], told["trials"], told["best"]) == ("recorded", 24, [3])
    (tmp_path / "mine.html").write_text("mine")
    refused = call(cli, ["sweep", "report", "recorded", "-o", "mine.html"])
    assert refused.exit_code == 2
    assert (tmp_path / "mine.html").read_text() == "mine"
    assert call(cli, ["sweep", "report", "no-such"]).exit_code == 2
