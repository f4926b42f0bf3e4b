"""The reporters of a job, as the delivery knows them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.supervisor.delivery.addressee import addressees_of, unique_names
from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore_hookspecs import Event, ReporterContext
from hostcore_hookspecs.events import EpochStarted

SOURCE = """
HEARD = []
class Reporter:
    def open(self, ctx): HEARD.append(("open", ctx.run_id, ctx.attempt, ctx.last_seq))
    def report_event(self, *, event): HEARD.append(event.name)
    def close(self): HEARD.append("close")
class Display:
    LIVE_ONLY = True
    def report_event(self, event): HEARD.append("second")
"""


@pytest.fixture
def plan(site_here: Any, tmp_path: Path) -> Callable[..., RunPlan]:
    """``plan("loud", {"use": "display", "required": True})``: the plan of a job with these reporters."""
    site_here.install(
        "loud",
        version="2.1",
        modules={"loud_reporter.py": SOURCE},
        entry_points={
            "hostcore.reporters": {"loud": "loud_reporter:Reporter", "display": "loud_reporter:Display"},
        },
    )

    def make(*reporters: Any) -> RunPlan:
        job = {"trainer": "somewhere:Trainer", "run_id": "a", "max_steps": 10, "reporters": list(reporters)}
        job["terminal"] = False
        return make_plan(job, runs=tmp_path / "runs")

    return make


def test_a_reporter_is_called_as_it_is_written(plan: Callable[..., RunPlan], tmp_path: Path) -> None:
    job = plan("loud", "display")
    loud, display = addressees_of(job.reporters, job.spec.reporters)
    loud.open(ReporterContext(run_id="a", attempt=1, job=job.job, run_dir=str(tmp_path), last_seq=4))
    for one in (loud, display):
        one.report_event(Event(seq=1, time_ms=0, run_id="a", attempt=1, payload=EpochStarted()))
    loud.close()
    assert (display.open(None), display.close()) == (None, None), "it has none of these"  # type: ignore[arg-type]
    assert sys.modules["loud_reporter"].HEARD == [("open", "a", 1, 4), "epoch_started", "second", "close"]


def test_a_use_says_what_the_delivery_has_to_know(plan: Callable[..., RunPlan]) -> None:
    job = plan("loud", {"use": "display", "required": True}, "loud/loud")
    found = addressees_of(job.reporters, job.spec.reporters)
    assert [(one.label, one.name, one.identity, one.required, one.live_only) for one in found] == [
        ("loud (loud 2.1)", "loud", "loud/loud", False, False),
        ("display (loud 2.1)", "display", "loud/display", True, True),
        ("loud (loud 2.1)", "loud.2", "loud/loud", False, False),
    ]


def test_each_instance_is_served_by_one_thread_at_a_time_over_all_attempts(plan: Callable[..., RunPlan]) -> None:
    job = plan("loud", "loud")
    first, second = (addressees_of(job.reporters, job.spec.reporters) for _ in range(2))
    assert [one.turn for one in first] == [one.turn for one in second]
    assert first[0].turn is not first[1].turn


def test_names_stay_different_whatever_they_are() -> None:
    assert unique_names(["x", "x", "x.2", "y", "x"]) == ["x", "x.2", "x.2.2", "y", "x.3"]
