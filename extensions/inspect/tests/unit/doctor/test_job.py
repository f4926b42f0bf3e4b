"""Whether a job could run on a machine that was looked at."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hostcore.supervisor.check import CheckFailed, check_job
from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore_hookspecs import HostcoreError
from hostcore_inspect.doctor.finding import DoctorFinding
from hostcore_inspect.doctor.job import JobReport, examine_job

ALL = {"fp32": "right", "bf16": "right", "fp16": "absent"}
CHECKED = {"device": "cpu", "devices": ["cpu"], "total_steps": 3, "feed_bytes": 0}


def machine(*devices: str, broken: Sequence[str] = ()) -> list[DoctorFinding]:
    names = ["torch", "device.cpu", *(f"device.{name}" for name in devices), "ranks.gloo", "ranks.nccl"]
    return [
        DoctorFinding(name=name, status="failed" if name in broken else "ok", finding="", products=ALL)
        for name in names
    ]


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., RunPlan]:
    def make(**job: Any) -> RunPlan:
        (tmp_path / "job.json").write_text(json.dumps({"trainer": "no:Where", "mock_batches": [1], **job}))
        return make_plan(tmp_path / "job.json", runs=tmp_path / "runs")

    return make


def answering(checked: Mapping[str, Any] | HostcoreError) -> Any:
    def check(plan: RunPlan, *, timeout_seconds: float) -> Mapping[str, Any]:
        if isinstance(checked, HostcoreError):
            raise checked
        return checked

    return check


def examined(plan: RunPlan, found: Sequence[DoctorFinding], checked: Any = CHECKED) -> JobReport:
    return examine_job(plan, found, timeout_seconds=60, check=answering(checked))


def statuses(report: JobReport) -> dict[str, str]:
    return {one.name: one.status for one in report.findings}


def test_what_it_asks_for_is_there(plan: Callable) -> None:
    report = examined(plan(precision="bf16"), machine())
    assert statuses(report) == {"job": "ok", "job.device": "ok", "job.memory": "ok"}
    assert (report.devices, report.invalid) == (["cpu"], False)


def test_the_devices_that_its_ranks_found_are_told(plan: Callable) -> None:
    found = {**CHECKED, "device": "cuda:0", "devices": ["cuda:0", "cuda:1"]}
    report = examined(plan(devices="auto:2"), machine("cuda:0", "cuda:1"), found)
    assert (report.devices, statuses(report)["job.ranks"]) == (["cuda:0", "cuda:1"], "ok")


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"device": "cuda:1"}, "there is no cuda:1"),
        ({"device": "mps"}, "there is no mps"),
        ({"precision": "fp16", "device": "cuda"}, "cuda:0 has no fp16"),
        ({"devices": ["cuda:0", "cuda:0"]}, "2 ranks cannot share cuda:0"),
    ],
)
def test_a_device_or_a_precision_that_is_not_there_fails(plan: Callable, job: dict[str, Any], says: str) -> None:
    report = examined(plan(**job), machine("cuda:0"))
    assert statuses(report)["job.device"] == "failed"
    assert says in report.findings[1].finding


def test_a_device_that_does_not_work_fails(plan: Callable) -> None:
    report = examined(plan(device="cuda"), machine("cuda:0", broken=["device.cuda:0"]))
    assert "cuda:0 does not work" in report.findings[1].finding


@pytest.mark.parametrize(
    ("devices", "broken", "status"),
    [
        (["cpu", "cpu"], "ranks.nccl", "ok"),
        (["cpu", "cpu"], "ranks.gloo", "failed"),
        (["cuda:0", "cuda:1"], "ranks.nccl", "failed"),
        (["cuda:0", "cuda:1"], "ranks.gloo", "failed"),
    ],
)
def test_several_ranks_need_what_connects_them(plan: Callable, devices: list[str], broken: str, status: str) -> None:
    report = examined(plan(devices=devices), machine("cuda:0", "cuda:1", broken=[broken]))
    assert statuses(report)["job.ranks"] == status


def test_more_memory_than_there_is_fails(plan: Callable) -> None:
    report = examined(plan(), machine(), {**CHECKED, "feed_bytes": 1 << 50})
    assert statuses(report)["job.memory"] == "failed"


def test_what_validate_has_against_it_is_a_finding_with_all_errors(plan: Callable) -> None:
    error = HostcoreError("no such key", code="setting.unknown", pointer="/hyperparams/x", hint="remove it")
    report = examined(plan(device="cpu"), machine(), error)
    assert statuses(report) == {"job": "failed", "job.device": "ok"}
    assert report.findings[0].hint == "remove it"
    assert [one["pointer"] for one in report.findings[0].details["errors"]] == ["/hyperparams/x"]
    assert report.invalid


def test_it_is_not_checked_where_its_worker_would_hang_again(plan: Callable) -> None:
    hung = DoctorFinding(name="accelerators", status="failed", finding="", hung=True)
    report = examine_job(plan(), [*machine(), hung], timeout_seconds=60, check=answering(AssertionError("called")))
    assert statuses(report) == {"job": "failed"}
    assert "accelerators" in report.findings[0].finding


def test_a_worker_that_is_not_done_checking_in_time_is_ended(plan: Callable, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import threading\nthreading.Event().wait()\n")
    with pytest.raises(CheckFailed, match=r"not done checking the job after 0\.5 seconds"):
        check_job(plan(trainer="waits:Trainer"), timeout_seconds=0.5)
