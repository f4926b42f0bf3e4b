"""The reporters and uploaders of a job as subscriptions: named, told apart, with their methods."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hostcore.job.sections import DeliveryUse
from hostcore.plugins.component import load_component
from hostcore.plugins.resolve import Selected
from hostcore.supervisor.delivery.subscription import (
    Destination,
    destinations_of,
    mirroring,
    prefix_of,
    subscriptions_of,
    unique_names,
)
from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore_hookspecs import Event, ReporterContext
from hostcore_hookspecs.events import EpochStarted
from hostcore_hookspecs.plan import PluginRef

Made = Callable[..., list[Destination]]

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


def test_a_reporter_is_called_as_it_is_written(plan: Callable[..., RunPlan], tmp_path: Path) -> None:
    job = plan("loud", "display")
    loud, display = subscriptions_of(job.reporters, job.spec.reporters)
    loud.open(ReporterContext(run_id="a", attempt=1, job=job.job, run_dir=str(tmp_path), last_seq=4))
    for one in (loud, display):
        one.report_event(Event(seq=1, time_ms=0, run_id="a", attempt=1, payload=EpochStarted()))
    loud.close()
    assert (display.open(None), display.close()) == (None, None), "it has none of these"  # type: ignore[arg-type]
    assert sys.modules["loud_reporter"].HEARD == [("open", "a", 1, 4), "epoch_started", "second", "close"]


def test_a_use_says_what_the_delivery_has_to_know(plan: Callable[..., RunPlan]) -> None:
    job = plan("loud", {"use": "display", "required": True}, "loud/loud")
    found = subscriptions_of(job.reporters, job.spec.reporters)
    assert [(one.label, one.name, one.identity, one.required, one.live_only) for one in found] == [
        ("loud (loud 2.1)", "loud", "loud/loud", False, False),
        ("display (loud 2.1)", "display", "loud/display", True, True),
        ("loud (loud 2.1)", "loud.2", "loud/loud", False, False),
    ]


def test_each_instance_is_served_by_one_thread_at_a_time_over_all_attempts(plan: Callable[..., RunPlan]) -> None:
    job = plan("loud", "loud")
    first, second = (subscriptions_of(job.reporters, job.spec.reporters) for _ in range(2))
    assert [one.turn for one in first] == [one.turn for one in second]
    assert first[0].turn is not first[1].turn


def test_names_stay_different_whatever_they_are() -> None:
    assert unique_names(["x", "x", "x.2", "y", "x"]) == ["x", "x.2", "x.2.2", "y", "x.3"]


@pytest.fixture
def made() -> Made:
    """``made({"uri": "s3://a"}, …)``: a destination for each, all of the fsspec uploader."""
    pytest.importorskip("hostcore_builtin_plugins.uploaders.fsspec")
    value = "hostcore_builtin_plugins.uploaders.fsspec:FsspecUploader"
    ref = PluginRef(kind="uploader", name="fsspec", value=value, dist="hostcore-builtin-plugins", version="0.1.0")

    def make(*settings: Mapping[str, Any], base_uri: str | None = None) -> list[Destination]:
        uses = [DeliveryUse(use="fsspec", required=True, settings=one) for one in settings]
        selected = [Selected(ref=ref, settings=one, pointer="/uploaders/0", use="u", named_at="/") for one in settings]
        components = [load_component(one, job_dir=Path.cwd()) for one in selected]
        return destinations_of(components, uses, base_uri=base_uri)

    return make


def test_two_uses_of_one_uploader_have_names_of_their_own(made: Made) -> None:
    one, two = made({"uri": "/a"}, {"uri": "/b"})
    assert (one.name, two.name) == ("fsspec", "fsspec.2")
    assert one.label != two.label
    assert one.required


def test_a_destination_is_known_by_its_settings_and_the_base(made: Made) -> None:
    keys = [one.key for one in (*made({"uri": "/a"}, {"uri": "/b"}, {}), *made({}, base_uri="/c"))]
    assert len(set(keys)) == 4
    assert [one.key for one in made({"uri": "/b"}, {"uri": "/a"})] == [keys[1], keys[0]]


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


def test_a_run_has_its_place_below_any_base() -> None:
    assert prefix_of("run-1", "my-dist/my_trainer") == "run-1/framework=my-dist-my_trainer"
    assert prefix_of("run-1", "module:Trainer") == "run-1/framework=module-Trainer"
