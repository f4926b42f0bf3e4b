"""The reporters and uploaders of a job as subscriptions: named, told apart, with their methods."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hostcore.job.sections import DeliveryUse
from hostcore.supervisor.delivery.subscription import (
    Destination,
    destinations_of,
    mirroring,
    subscriptions_of,
    unique_names,
)
from hostcore.supervisor.plan import RunPlan, make_plan

Made = Callable[..., list[Destination]]

SOURCE = """
class Reporter:
    def report_event(self, event): pass
class Display(Reporter):
    LIVE_ONLY = True
"""
COPIES = """
from hostcore_hookspecs import hookimpl
class Plain:
    def upload_artifact(self, artifact): return ["plain", artifact]
class Around:
    @hookimpl(wrapper=True, specname="upload_artifact")
    def around(self): return ["around", *(yield)]
"""
UPLOADERS = {"plain": "copies:Plain", "around": "copies:Around"}


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


def test_a_use_says_what_the_delivery_has_to_know(plan: Callable[..., RunPlan]) -> None:
    job = plan("loud", {"use": "display", "required": True}, "loud/loud")
    found = subscriptions_of(job.reporters, job.spec.reporters)
    assert [(one.label, one.name, one.identity, one.required, one.live_only) for one in found] == [
        ("loud (loud 2.1)", "loud", "loud/loud", False, False),
        ("display (loud 2.1)", "display", "loud/display", True, True),
        ("loud (loud 2.1)", "loud.2", "loud/loud", False, False),
    ]
    assert unique_names(["x", "x", "x.2", "y", "x"]) == ["x", "x.2", "x.2.2", "y", "x.3"]


def test_a_destination_is_known_by_its_settings_and_the_base(tmp_path: Path) -> None:
    job = {"trainer": "somewhere:Trainer", "run_id": "a", "max_steps": 10}

    def keys(*settings: Mapping[str, Any], **base: str) -> list[str]:
        uploaders = [{"use": "fsspec", **one} for one in settings]
        plan = make_plan({**job, "uploaders": uploaders, **base}, runs=tmp_path / "runs")
        return [
            one.key
            for one in destinations_of(plan.uploaders, plan.spec.uploaders, base_uri=plan.spec.checkpoint_base_uri)
        ]

    first = [*keys({"uri": "/a"}, {"uri": "/b"}, {}), *keys({}, checkpoint_base_uri="/c")]
    assert len(set(first)) == 4
    assert keys({"uri": "/b"}, {"uri": "/a"}) == [first[1], first[0]]


def test_an_uploader_that_only_wraps_is_around_the_others_and_no_destination(site_here: Any, tmp_path: Path) -> None:
    site_here.install("copies", modules={"copies.py": COPIES}, entry_points={"hostcore.uploaders": UPLOADERS})
    job = {"trainer": "somewhere:Trainer", "run_id": "a", "max_steps": 10, "uploaders": ["around", "plain"]}
    plan = make_plan(job, runs=tmp_path / "runs")
    (plain,) = destinations_of(plan.uploaders, plan.spec.uploaders)
    assert plain.name == "plain"
    assert plain.upload_artifact("file") == ["around", "plain", "file"]  # type: ignore[arg-type, comparison-overlap]


def test_the_base_uri_of_a_job_stands_for_an_uploader() -> None:
    other, own = DeliveryUse(use="http"), DeliveryUse(use="fsspec", settings={"uri": "/elsewhere"})
    assert mirroring([other], None) == (other,)
    assert [one.use for one in mirroring([other, own], "/base")][2:] == ["hostcore-builtin-plugins/fsspec"]
    assert len(mirroring([DeliveryUse(use="fsspec", required=True)], "/base")) == 1
