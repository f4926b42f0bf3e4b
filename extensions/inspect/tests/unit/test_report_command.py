"""``hostcore report``: where the page goes, and what it never replaces."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hostcore.cli import cli
from hostcore_hookspecs.events import Metrics, RunStarted

Report = Callable[..., Result]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """``report("a", "--json")``, in a folder whose ``runs`` is that of the ``run`` fixture."""
    monkeypatch.delenv("HOSTCORE_RUNS_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(cli, ["report", *arguments], catch_exceptions=False)


def document(result: Result) -> Any:
    import json

    return json.loads(result.stdout)


def test_a_report_lies_in_the_working_directory_and_the_run_directory_stays_as_it_is(
    report: Report, run: Callable, tell: Callable, tmp_path: Path
) -> None:
    directory = run("a", status="succeeded")
    tell(directory, (0, RunStarted(device="cpu")), (10, Metrics(metrics={"train/loss": 2.0})))
    before = {path: path.stat().st_mtime_ns for path in directory.path.rglob("*")}
    result = report("a")
    assert result.exit_code == 0
    assert result.stdout.startswith("report of a (succeeded): a.html (")
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>\n")
    assert {path: path.stat().st_mtime_ns for path in directory.path.rglob("*")} == before
    assert [path.name for path in tmp_path.iterdir() if path.name != "runs"] == ["a.html"]


def test_the_document_says_where_it_is_and_what_is_in_it(
    report: Report, run: Callable, tell: Callable, tmp_path: Path
) -> None:
    tell(run("a"), (0, RunStarted(device="cpu")), (10, Metrics(metrics={"train/loss": 2.0, "lr": 1.0})))
    (tmp_path / "sub").mkdir()
    found = document(report("a", "--output", "sub/x.html", "--json"))
    path = tmp_path / "sub" / "x.html"
    assert found == {
        "run_id": "a",
        "status": "running",
        "report": str(path),
        "bytes": path.stat().st_size,
        "events": 2,
        "metrics": 2,
    }


def test_an_older_report_is_replaced(report: Report, run: Callable, tmp_path: Path) -> None:
    run("a", status="succeeded")
    report("a")
    (tmp_path / "a.html").write_text((tmp_path / "a.html").read_text() + "<!-- old -->")
    assert report("a").exit_code == 0
    assert "<!-- old -->" not in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("content", ["", "<html>my notes</html>", "x" * 5000 + 'content="hostcore report"'])
def test_any_other_file_is_replaced_only_by_force(report: Report, run: Callable, tmp_path: Path, content: str) -> None:
    run("a", status="succeeded")
    path = tmp_path / "a.html"
    path.write_text(content)
    result = report("a", "--json")
    assert (result.exit_code, document(result)["errors"][0]["code"]) == (2, "report.exists")
    assert path.read_text() == content
    assert report("a", "--force").exit_code == 0
    assert path.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("output", "code"),
    [("folder", "report.name"), ("missing/x.html", "report.unwritable"), ("file/x.html", "report.unwritable")],
)
def test_a_place_where_no_file_can_be_is_an_error(
    report: Report, run: Callable, tmp_path: Path, output: str, code: str
) -> None:
    run("a", status="succeeded")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    result = report("a", "--output", output, "--json")
    assert (result.exit_code, document(result)["errors"][0]["code"]) == (2, code)
    assert result.stderr == ""


def test_an_unknown_run_exits_2(report: Report) -> None:
    result = report("nothing", "--json")
    assert (result.exit_code, document(result)["errors"][0]["code"]) == (2, "run.unknown")


def test_a_browser_is_opened_if_one_is_asked_for(
    report: Report, run: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    # A browser on a developer's machine would come up in the middle of the tests.
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or False)
    run("a", status="succeeded")
    assert report("a").stderr == ""
    result = report("a", "--open")
    assert opened == [(tmp_path / "a.html").as_uri()]
    assert (result.exit_code, result.stderr) == (0, "there is no browser to open it in\n")


def test_a_pipe_in_place_of_a_report_is_not_waited_for(report: Report, run: Callable, tmp_path: Path) -> None:
    run("a", status="succeeded")
    os.mkfifo(tmp_path / "a.html")
    result = report("a", "--json")
    assert (result.exit_code, document(result)["errors"][0]["code"]) == (2, "report.exists")
