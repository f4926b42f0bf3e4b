"""What is asked of the API server, and what its refusals become."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from typing import Any

import attrs
import pytest
from engine_runs import launch_context
from kubernetes_emulator import Fault

from hostcore_engines.kubernetes.launching import KubernetesLauncher
from hostcore_engines.kubernetes.pytorchjob import PytorchJobLauncher
from hostcore_hookspecs import FatalError, HostcoreError, LaunchContext, TransientError

JOBS = "/pytorchjobs"


@pytest.fixture
def launcher(kubernetes: Any) -> PytorchJobLauncher:
    return PytorchJobLauncher(settings_for(kubernetes))


def settings_for(kubernetes: Any, **more: Any) -> Any:
    whole = {"image": "registry.example/trainer:1", "python": sys.executable, "timeout_seconds": 300.0, **more}
    return PytorchJobLauncher.Settings(kubeconfig=kubernetes.kubeconfig, **whole)


def context(code: str = "print('hello')", **changes: Any) -> LaunchContext:
    whole = {"run_id": "demo_1", "name": "demo-1", "document": {"trainer": "meta"}}
    return launch_context("/runs/demo_1", [sys.executable, "-c", code], **{**whole, **changes})


def test_one_launch_makes_one_object_however_often_it_is_tried(kubernetes: Any, launcher: KubernetesLauncher) -> None:
    handles = [launcher.launch(context()) for _ in range(3)]
    assert handles[0] == handles[1] == handles[2]
    assert len(kubernetes.objects("pytorchjobs")) == 1
    assert len(kubernetes.objects("configmaps")) == 1


@pytest.mark.parametrize("path", [JOBS, "/configmaps"])
def test_a_launch_whose_answer_was_lost_is_found_by_the_next_try(
    kubernetes: Any, launcher: KubernetesLauncher, path: str
) -> None:
    kubernetes.fail(Fault(path=path, method="POST", status=503, after=True))
    with pytest.raises(TransientError):
        launcher.launch(context())
    kubernetes.heal()
    handle = launcher.launch(context())
    [job] = kubernetes.objects("pytorchjobs")
    [document] = kubernetes.objects("configmaps")
    assert handle.details["uid"] == job["metadata"]["uid"]
    assert document["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]


def test_another_launch_of_the_same_name_is_refused(kubernetes: Any, launcher: KubernetesLauncher) -> None:
    launcher.launch(context())
    for launch_id in ("demo_1.2", ""):
        with pytest.raises(FatalError, match=r"^PyTorchJob demo-1 already exists$"):
            launcher.launch(context(launch_id=launch_id))
    assert len(kubernetes.objects("configmaps")) == 1


def test_launches_that_nobody_named_get_names_of_their_own(launcher: KubernetesLauncher) -> None:
    names = {launcher.launch(context(name="", launch_id="")).id for _ in range(3)}
    assert len(names) == 3


def test_an_object_is_checked_before_anything_is_made(kubernetes: Any, launcher: KubernetesLauncher) -> None:
    launcher.launch(context())
    posts = kubernetes.requests("POST")
    assert [(one.url.path.rpartition("/")[2], one.params.get("dryRun")) for one in posts] == [
        ("pytorchjobs", "All"),
        ("configmaps", None),
        ("pytorchjobs", None),
    ]
    assert {one.params["fieldValidation"] for one in posts} == {"Strict"}


def test_a_field_that_the_server_does_not_know_is_refused(
    kubernetes: Any,
    launcher: KubernetesLauncher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kubernetes.api.crds is None:
        pytest.skip("HOSTCORE_TEST_CRDS does not name a folder with the published CRDs")
    made = launcher.manifest

    def with_more(*arguments: Any) -> dict[str, Any]:
        return {**made(*arguments), "elasticPolicies": {}}

    monkeypatch.setattr(launcher, "manifest", with_more)
    with pytest.raises(FatalError, match=r'unknown field "spec\.elasticPolicies"'):
        launcher.launch(context())
    assert kubernetes.objects("configmaps") == []


@pytest.mark.parametrize(
    ("fault", "error", "told"),
    [
        ({"status": 401, "reason": "Unauthorized", "message": "Unauthorized"}, FatalError, "Unauthorized"),
        ({"status": 403, "reason": "Forbidden", "message": "exceeded quota: gpus"}, FatalError, "exceeded quota"),
        ({"status": 422, "reason": "Invalid", "message": "spec is invalid"}, FatalError, "spec is invalid"),
        ({"status": 400, "reason": "BadRequest", "message": "unknown field"}, FatalError, "unknown field"),
        ({"status": 409, "reason": "Conflict", "message": "changed meanwhile"}, TransientError, "changed meanwhile"),
        ({"status": 429, "reason": "TooManyRequests", "message": "slow down"}, TransientError, "slow down"),
        ({"status": 500, "message": "etcd has no leader"}, TransientError, "etcd has no leader"),
        ({"status": 503, "body": "<html>no backend</html>"}, TransientError, "503"),
    ],
)
def test_what_the_server_says_is_told(
    kubernetes: Any,
    launcher: KubernetesLauncher,
    fault: dict[str, Any],
    error: type[HostcoreError],
    told: str,
) -> None:
    kubernetes.fail(Fault(path=JOBS, dry_runs=True, headers={"Retry-After": "7"}, **fault))
    with pytest.raises(error, match=told) as raised:
        launcher.launch(context())
    if isinstance(raised.value, TransientError):
        assert raised.value.retry_after_seconds == 7.0
    kubernetes.heal()
    assert kubernetes.objects("configmaps") == []


@pytest.mark.parametrize("after", [False, True])
def test_a_server_that_fails_once_makes_one_object(kubernetes: Any, launcher: KubernetesLauncher, after: bool) -> None:
    kubernetes.fail(Fault(path=JOBS, method="POST", after=after))
    healing = threading.Thread(
        target=lambda: (kubernetes.wait(lambda: kubernetes.requests("GET", JOBS)), kubernetes.heal())
    )
    healing.start()
    handle = launcher.launch(context())
    healing.join()
    [job] = kubernetes.objects("pytorchjobs")
    assert handle.details["uid"] == job["metadata"]["uid"]
    assert kubernetes.objects("configmaps")[0]["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]


def test_a_server_that_always_fails_starts_nothing_and_that_is_certain(
    kubernetes: Any, launcher: KubernetesLauncher
) -> None:
    kubernetes.fail(Fault(path=JOBS, method="POST", message="the webhook is down"))
    with pytest.raises(FatalError, match="the webhook is down") as failed:
        launcher.launch(context())
    assert failed.value.code == "launch.not_started"
    kubernetes.heal()
    assert kubernetes.objects("configmaps") == []
    launcher.launch(context(launch_id="demo_1.2"))


def test_a_refusal_after_an_answer_was_lost_is_certain_only_if_nothing_was_made(
    kubernetes: Any, launcher: KubernetesLauncher
) -> None:
    forbidden = Fault(path=JOBS, method="POST", status=403, reason="Forbidden", message="no more quota", dry_runs=True)
    kubernetes.fail(forbidden)
    with pytest.raises(FatalError, match="no more quota") as refused:
        launcher.launch(context())
    assert refused.value.code == "launch.not_started"
    kubernetes.heal()
    made = launcher.launch(context())
    kubernetes.fail(forbidden)
    assert launcher.launch(context()) == made


def test_a_cluster_without_the_operator_says_what_to_install(kubernetes: Any, launcher: KubernetesLauncher) -> None:
    kubernetes.api.installed.discard("pytorchjobs")
    with pytest.raises(FatalError) as refused:
        launcher.launch(context())
    assert "install the Kubeflow training operator" in (refused.value.hint or "")


def test_a_namespace_that_is_not_there_is_shown_in_the_job(launcher: KubernetesLauncher) -> None:
    with pytest.raises(FatalError, match='namespaces "nowhere" not found') as refused:
        launcher.launch(context(resources={"namespace": "nowhere"}))
    assert refused.value.pointer == "/resources/namespace"


def test_a_server_that_does_not_answer_may_answer_later(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        f" users: [{{name: a, user: {{}}}}], clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]}}"
    )
    settings = PytorchJobLauncher.Settings(kubeconfig=kubeconfig, image="a:1")
    with pytest.raises(TransientError, match="does not answer"):
        PytorchJobLauncher(settings).launch(context())


def test_without_a_way_to_a_cluster_it_says_what_to_set(tmp_path: Path) -> None:
    settings = PytorchJobLauncher.Settings(kubeconfig=tmp_path / "none", image="a:1")
    with pytest.raises(FatalError) as refused:
        PytorchJobLauncher(settings).launch(context())
    assert "KUBECONFIG" in (refused.value.hint or "")


def test_a_context_that_is_not_there_is_told(kubernetes: Any) -> None:
    with pytest.raises(FatalError, match="prod"):
        PytorchJobLauncher(settings_for(kubernetes, context="prod")).launch(context())


def test_a_job_that_another_has_taken_the_name_of_is_lost(kubernetes: Any, launcher: KubernetesLauncher) -> None:
    handle = launcher.launch(context())
    kubernetes.forget("pytorchjobs", "demo-1")
    launcher.launch(context(launch_id="demo_1.2"))
    assert launcher.poll(handle).status == "lost"
    launcher.cancel(handle, 1.0)
    [job] = kubernetes.objects("pytorchjobs")
    assert job["spec"]["runPolicy"]["suspend"] is False


def test_a_job_that_an_administrator_suspended_is_not_cancelled(kubernetes: Any, launcher: KubernetesLauncher) -> None:
    handle = launcher.launch(context("import time; time.sleep(3600)"))
    kubernetes.change("pytorchjobs", "demo-1", {"spec": {"runPolicy": {"suspend": True}}})
    kubernetes.wait(lambda: not kubernetes.objects("pods"))
    assert launcher.poll(handle).status == "submitted"
    assert "suspended" in launcher.poll(handle).message


def test_why_no_pod_is_made_is_told(kubernetes: Any, launcher: KubernetesLauncher) -> None:
    kubernetes.forbid_pods('pods "demo-1-master-0" is forbidden: exceeded quota: gpus')
    handle = launcher.launch(context())
    kubernetes.wait(lambda: "exceeded quota" in launcher.poll(handle).message)
    status = launcher.poll(handle)
    assert (status.status, status.message.partition(":")[0]) == ("submitted", "FailedCreatePod")


def test_less_grace_than_the_pods_have_by_themselves_is_asked_for(
    kubernetes: Any, launcher: KubernetesLauncher
) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)"
    handle = launcher.launch(context(f"{deaf}; time.sleep(3600)"))
    kubernetes.wait(lambda: launcher.read_logs(handle, "").text)
    launcher.cancel(handle, 12.2)
    [deletion] = kubernetes.requests("DELETE")
    assert deletion.params.get("gracePeriodSeconds") == "13"


def test_a_container_that_is_started_again_keeps_its_log_in_one_piece(kubernetes: Any) -> None:
    launcher = PytorchJobLauncher(settings_for(kubernetes, restart_policy="OnFailure"))
    handle = launcher.launch(context("print('run', flush=True); raise SystemExit(1)"))
    text, since = "", ""

    def twice() -> bool:
        nonlocal text, since
        chunk = launcher.read_logs(handle, since)
        text, since = text + chunk.text, chunk.next
        return text.count("run\n") > 1

    kubernetes.wait(twice)
    launcher.cancel(handle, 1.0)
    assert set(text.splitlines()) == {"run"}


def test_a_plan_asks_the_cluster_nothing(kubernetes: Any, launcher: KubernetesLauncher) -> None:
    before = len(kubernetes.requests())
    plan = launcher.plan(attrs.evolve(context(), name=""))
    assert plan.summary == "PyTorchJob run-demo-1 in namespace default, 1 node"
    assert len(kubernetes.requests()) == before
