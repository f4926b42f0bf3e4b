"""The checks of reporters, apart from the plugins that they are for."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from hostcore_builtin_plugins.jsonl import JsonlReporter
from hostcore_conformance import check_plugin
from hostcore_conformance.event_fixtures import BARE, FULL
from hostcore_hookspecs import TransientError
from hostcore_hookspecs.events import PAYLOADS, Event


def test_there_is_an_example_of_every_event() -> None:
    assert set(FULL) == set(BARE) == set(PAYLOADS)
    assert {name: type(payload) for name, payload in FULL.items()} == dict(PAYLOADS)
    assert {name: type(payload) for name, payload in BARE.items()} == dict(PAYLOADS)


def test_without_a_harness_a_reporter_conforms_and_is_told_what_is_missing(tmp_path: Path) -> None:
    settings = {"path": str(tmp_path / "events.jsonl")}
    results = check_plugin("jsonl", kind="reporter", settings=settings, only=["reporter.*"])
    assert {one.status for one in results} == {"passed", "skipped"}
    skipped = {one.id: one for one in results if one.wants_example}
    assert {"reporter.arrives", "reporter.outage[open]", "reporter.hang"} <= set(skipped)
    assert skipped["reporter.arrives"].message == (
        "there is no harness: give an object with received(), so that the kit can see what has arrived"
        ' (harness = "tests/harness.py:Harness" in [tool.hostcore.conformance.jsonl])'
    )


class Slow:
    """A file that is shown late, and that has other runs in it."""

    def __init__(self, path: Path, item: dict[str, Any]) -> None:
        self.settings = {"path": str(path)}
        self._path, self._item, self._looks = path, item, 0

    def received(self) -> list[dict[str, Any]]:
        self._looks += 1
        if self._looks % 5 or not self._path.exists():
            return [self._item]
        return [self._item, *(json.loads(line) for line in self._path.read_text().splitlines())]


def test_a_sink_may_show_late_what_it_has_and_have_other_runs_in_it(tmp_path: Path) -> None:
    harness = Slow(tmp_path / "events.jsonl", {"seq": 3, "run_id": "another"})
    (result,) = check_plugin("jsonl", kind="reporter", harness=harness, only=["reporter.arrives"])
    assert result.status == "passed", result.message


def test_an_event_that_the_sink_was_too_busy_for_is_told_again_as_by_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, calls = JsonlReporter.report_event, itertools.count()

    def be_busy(reporter: JsonlReporter, event: Event) -> None:
        if next(calls) % 3 == 1:
            raise TransientError("it did not answer in time")
        take(reporter, event)

    monkeypatch.setattr(JsonlReporter, "report_event", be_busy)
    harness = Slow(tmp_path / "events.jsonl", {"seq": 3, "run_id": "another"})
    (result,) = check_plugin("jsonl", kind="reporter", harness=harness, only=["reporter.arrives"])
    assert result.status == "passed", result.message
    assert next(calls) > 3


@pytest.mark.parametrize("item", [{"step": 3}, "seq 3"], ids=str)
def test_a_harness_that_shows_no_events_is_told_so(tmp_path: Path, item: Any) -> None:
    harness = Slow(tmp_path / "events.jsonl", item)
    (result,) = check_plugin("jsonl", kind="reporter", harness=harness, only=["reporter.arrives"])
    assert result.status == "failed"
    assert 'Each is a mapping with "seq"' in result.message
