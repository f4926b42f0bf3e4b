"""How a job stands, from what the cluster says of it and its pods."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore_builtin_plugins.run_result import earlier_result
from hostcore_engines.kubernetes.launching import KubernetesLauncher
from hostcore_engines.kubernetes.states import gone, own_result, status_of
from hostcore_engines.kubernetes.trouble import troubles_of
from hostcore_hookspecs import LaunchHandle, LaunchStatus

Launcher = Callable[..., KubernetesLauncher]

CANCELLED = {"hostcore/cancelled": "true"}


def job(*conditions: str, active: int = 0, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """A job with conditions: ``Failed`` holds, ``-Running`` does not, ``Failed:text`` has a message."""
    found = []
    for told in conditions:
        name, _, message = told.removeprefix("-").partition(":")
        found.append({"type": name, "status": "False" if told.startswith("-") else "True", "message": message})
    replicas = {"Master": {"active": active}, "Worker": {}}
    jobs = [{"name": "node", "ready": active, "active": active}]
    status = {"conditions": found, "replicaStatuses": replicas, "jobsStatus": jobs}
    return {"metadata": {"name": "x", "annotations": annotations or {}}, "status": status}


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x-master-0", "labels": {}}, "status": status}


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return pod(phase="Failed", containerStatuses=[{"name": "pytorch", "state": state}])


def stands(launcher: KubernetesLauncher, *, of: dict[str, Any], pods: Any = (), **how: Any) -> LaunchStatus:
    how = {"exit_code": None, "result": None, **how}
    return status_of(of, launcher.conditions(of), list(pods), **how)


@pytest.mark.parametrize("kind", ["PyTorchJob"], indirect=True)
@pytest.mark.parametrize(
    ("conditions", "active", "expected", "message"),
    [
        ((), 0, "submitted", "PyTorchJob submitted"),
        (("Created:made",), 0, "submitted", "PyTorchJob submitted"),
        (("Created", "Running:it runs"), 1, "running", "it runs"),
        (("Created", "Running"), 1, "running", "PyTorchJob pods active"),
        (("Created",), 1, "running", "PyTorchJob pods active"),
        (("Created", "-Running", "Succeeded:done"), 0, "succeeded", "done"),
        (("Running", "Succeeded"), 1, "succeeded", "PyTorchJob completed"),
        (("Running", "Failed:no"), 1, "failed", "no"),
        (("Failed",), 0, "failed", "PyTorchJob failed"),
        (("Succeeded:first", "Failed"), 0, "succeeded", "first"),
        (("Restarting:again",), 0, "submitted", "again"),
        (("Suspended:Kueue has it",), 0, "submitted", "Kueue has it"),
    ],
)
def test_a_pytorchjob_stands_as_the_specification_says(
    launcher: Launcher, kind: str, conditions: tuple[str, ...], active: int, expected: str, message: str
) -> None:
    status = stands(launcher(), of=job(*conditions, active=active))
    assert (status.status, status.message) == (expected, message)


@pytest.mark.parametrize("kind", ["TrainJob"], indirect=True)
@pytest.mark.parametrize(
    ("conditions", "active", "expected"),
    [
        ((), 0, "submitted"),
        ((), 2, "running"),
        (("Complete",), 0, "succeeded"),
        (("Failed",), 0, "failed"),
        (("Suspended",), 0, "submitted"),
    ],
)
def test_a_trainjob_stands_as_its_conditions_and_jobs_say(
    launcher: Launcher, kind: str, conditions: tuple[str, ...], active: int, expected: str
) -> None:
    assert stands(launcher(), of=job(*conditions, active=active)).status == expected


@pytest.mark.parametrize(
    ("code", "expected"), [(1, "failed"), (2, "failed"), (3, "failed"), (75, "preempted"), (130, "cancelled")]
)
def test_the_exit_code_says_how_a_run_ended_that_nobody_sees(launcher: Launcher, code: int, expected: str) -> None:
    status = stands(launcher(), of=job("Failed:over"), pods=[ended(code)], exit_code=code)
    assert (status.status, status.exit_code) == (expected, code)


@pytest.mark.parametrize(
    ("found", "reason", "told"),
    [
        (ended(137, "OOMKilled"), "OOMKilled", "memory_per_node_gb"),
        (ended(1, "Error", "line\nerror: no data\n"), "exit code 1", "error: no data"),
        (ended(2), "exit code 2", "the job is invalid"),
        (ended(3), "exit code 3", "a policy refused the job"),
        (ended(128, "StartError", "exec: not found"), "StartError", "exec: not found"),
        (pod(phase="Failed", reason="Evicted", message="low on memory"), "Evicted", "low on memory"),
        (
            pod(
                phase="Pending",
                conditions=[
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
                ],
            ),
            "Unschedulable",
            "0/3 nodes",
        ),
        *(
            (
                pod(
                    phase="Pending",
                    containerStatuses=[{"name": "x", "state": {"waiting": {"reason": reason, "message": "because"}}}],
                ),
                reason,
                "because",
            )
            for reason in ("ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "InvalidImageName")
        ),
        (
            pod(
                phase="Running",
                containerStatuses=[
                    {
                        "name": "x",
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    }
                ],
            ),
            "CrashLoopBackOff",
            "more memory",
        ),
        (
            pod(
                phase="Pending",
                initContainerStatuses=[{"name": "init", "state": {"waiting": {"reason": "ImagePullBackOff"}}}],
            ),
            "ImagePullBackOff",
            "",
        ),
    ],
)
def test_the_reason_of_kubernetes_is_shown(found: dict[str, Any], reason: str, told: str) -> None:
    [trouble] = troubles_of([found])
    assert trouble.reason == reason
    assert told in str(trouble)
    assert "x-master-0" in str(trouble)


def test_a_pod_on_its_way_is_no_trouble() -> None:
    creating = [{"name": "x", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    assert troubles_of([pod(phase="Pending", containerStatuses=creating), pod(phase="Running")]) == []


def test_a_job_that_waits_says_what_for(launcher: Launcher) -> None:
    waiting = [{"name": "x", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]
    status = stands(launcher(), of=job(), pods=[pod(phase="Pending", containerStatuses=waiting)])
    assert status.status == "submitted"
    assert status.message == "ImagePullBackOff (pod x-master-0): no such image"


def test_a_cancelled_job_runs_until_its_pods_are_gone(launcher: Launcher) -> None:
    of = job("Suspended", "-Running", annotations=CANCELLED)
    assert stands(launcher(), of=of, pods=[pod(phase="Running")]).status == "running"
    assert stands(launcher(), of=of).status == "cancelled"


def test_a_run_that_was_asked_to_stop_is_cancelled_though_it_says_that_it_was_preempted(launcher: Launcher) -> None:
    result = LaunchStatus(status="preempted", message="SIGTERM", exit_code=75)
    status = stands(launcher(), of=job("Suspended", annotations=CANCELLED), result=result)
    assert (status.status, status.exit_code) == ("cancelled", 75)


@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_a_run_that_ended_before_it_heard_of_being_cancelled_says_how(launcher: Launcher, end: str) -> None:
    result = LaunchStatus(status=end, exit_code=0)
    assert stands(launcher(), of=job("Suspended", annotations=CANCELLED), result=result).status == end


@pytest.mark.parametrize("kind", ["PyTorchJob"], indirect=True)
@pytest.mark.parametrize(("told", "expected"), [("", "done"), ("three were enough", "three were enough")])
def test_a_run_that_says_nothing_of_its_success_leaves_it_to_kubernetes(
    launcher: Launcher, kind: str, told: str, expected: str
) -> None:
    result = LaunchStatus(status="succeeded", message=told, exit_code=0)
    status = stands(launcher(), of=job("Succeeded:done"), exit_code=0, result=result)
    assert (status.status, status.message) == ("succeeded", expected)


def test_who_killed_a_run_is_told_beside_what_it_said_itself(launcher: Launcher) -> None:
    result = LaunchStatus(status="failed", message="WorkerDied: killed by SIGKILL", exit_code=1)
    status = stands(launcher(), of=job("Failed"), pods=[ended(137, "OOMKilled")], exit_code=137, result=result)
    assert status.message.startswith("OOMKilled (pod x-master-0)")
    assert status.message.endswith("WorkerDied: killed by SIGKILL")


def test_of_a_job_that_is_gone_its_own_result_is_left(tmp_path: Path) -> None:
    earlier = earlier_result(str(tmp_path))
    details = {"namespace": "ml", "uid": "1", "run_dir": str(tmp_path), "earlier_result": earlier}
    handle = LaunchHandle(launcher="x", id="job-1", details=details)
    assert gone(handle, "PyTorchJob").status == "lost"
    assert "ml/job-1" in gone(handle, "PyTorchJob").message
    (tmp_path / "result.json").write_text(json.dumps({"status": "succeeded", "exit_code": 0}))
    assert gone(handle, "PyTorchJob").status == "succeeded"


def test_a_run_directory_that_the_pods_do_not_see_is_not_asked() -> None:
    handle = LaunchHandle(launcher="x", id="y", details={"run_dir": None, "earlier_result": None})
    assert own_result(handle) is None
