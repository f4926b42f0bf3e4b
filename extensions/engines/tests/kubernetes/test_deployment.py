"""The manifests of the service: what they make, what they allow, and that the service takes what they configure."""

from __future__ import annotations

import ipaddress
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from checkout import ROOT
from engine_runs import launch_context
from kubernetes_emulator import Fault

from hostcore.job.forms import structure
from hostcore.supervisor.operator_file import read_operator_file
from hostcore_builtin_plugins.policies.allow_list import AllowList
from hostcore_engines.kubernetes.pytorchjob import PytorchJobLauncher
from hostcore_engines.kubernetes.trainjob import TrainJobLauncher
from hostcore_hookspecs import FatalError, LaunchContext, TransientError
from hostcore_service.guard.hosts import METADATA
from hostcore_service.settings import Settings

MANIFESTS = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("base", "volume", "postgres")
#: What volumes may be made of: https://kubernetes.io/docs/concepts/security/pod-security-standards/, "restricted".
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
VERBS = {"POST": "create", "GET": "get", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)/namespaces/[^/]+/(?P<plural>[a-z]+)(?P<name>/[^/]+)?(?P<sub>/.+)?"
)

#: It has to be ended by force: its pod is there to be asked for less patience.
DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('hello', flush=True); time.sleep(3600)"
)

Objects = list[dict[str, Any]]


@pytest.fixture(scope="module", params=OVERLAYS)
def objects(request: pytest.FixtureRequest) -> Objects:
    return _rendered(request.param)


def _rendered(overlay: str) -> Objects:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed, which renders the manifests")
    command = [kubectl, "kustomize", str(MANIFESTS / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))


def _one(objects: Objects, kind: str) -> dict[str, Any]:
    [found] = [one for one in objects if one["kind"] == kind]
    return found


def _pod(objects: Objects) -> dict[str, Any]:
    pod: dict[str, Any] = _one(objects, "Deployment")["spec"]["template"]["spec"]
    return pod


def test_every_object_is_one_that_kubernetes_knows_to_the_last_field(objects: Objects) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="it has the schemas of Kubernetes").validate
    for one in objects:
        validate(one, desired_version="1.34", strict=True)
    assert {one["kind"] for one in objects} >= {"Deployment", "Role", "RoleBinding", "ServiceAccount", "NetworkPolicy"}


def test_the_pod_passes_the_restricted_standard(objects: Objects) -> None:
    pod = _pod(objects)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    for volume in pod["volumes"]:
        [kind] = volume.keys() - {"name"}
        assert kind in VOLUMES
    for container in [*pod["containers"], *pod.get("initContainers", ())]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
        assert not {"privileged", "procMount", "seLinuxOptions"} & security.keys()
        assert not any("hostPort" in port for port in container["ports"])


def test_what_is_written_is_mounted_and_no_password_stands_in_a_manifest(objects: Objects) -> None:
    [container] = _pod(objects)["containers"]
    written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert written - {"/database"} == {"/runs", "/tmp"}
    variables = {one["name"]: one for one in container["env"]}
    assert variables["HOSTCORE_RUNS_DIR"]["value"] == "/runs"
    for name in {"TRAINER_API_TOKEN", "HOSTCORE_DATABASE_URL"} & variables.keys():
        assert variables[name]["valueFrom"].keys() == {"secretKeyRef"}


def test_only_the_pod_of_the_service_has_a_token_and_only_for_its_own_namespace(objects: Objects) -> None:
    assert _one(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    assert _pod(objects)["automountServiceAccountToken"] is True
    assert not {"ClusterRole", "ClusterRoleBinding"} & {one["kind"] for one in objects}
    assert _one(objects, "RoleBinding")["subjects"] == [{"kind": "ServiceAccount", "name": "hostcore"}]


def test_every_image_has_a_version(objects: Objects) -> None:
    for container in _pod(objects)["containers"]:
        _, colon, tag = container["image"].rpartition(":")
        assert (colon, tag not in ("", "latest")) == (":", True)


def test_two_services_share_a_volume_and_a_database_and_one_alone_is_never_two() -> None:
    for overlay in OVERLAYS:
        objects = _rendered(overlay)
        replicas = _one(objects, "Deployment")["spec"]["replicas"]
        strategy = _one(objects, "Deployment")["spec"]["strategy"]["type"]
        has_database = "HOSTCORE_DATABASE_URL" in {one["name"] for one in _pod(objects)["containers"][0]["env"]}
        assert (replicas, strategy) == ((2, "RollingUpdate") if has_database else (1, "Recreate"))
        modes = _claim(objects, "hostcore-runs")["spec"]["accessModes"]
        assert modes == (["ReadWriteOnce"] if overlay == "base" else ["ReadWriteMany"])


def test_the_database_lies_in_no_volume_that_jobs_mount(objects: Objects, tmp_path: Path) -> None:
    path = tmp_path / "hostcore.toml"
    path.write_text(_one(objects, "ConfigMap")["data"]["hostcore.toml"])
    operator = read_operator_file({"HOSTCORE_CONFIG": str(path)})
    if "HOSTCORE_DATABASE_URL" in {one["name"] for one in _pod(objects)["containers"][0]["env"]}:
        assert _one(objects, "PersistentVolumeClaim")["metadata"]["name"] == "hostcore-runs"
        return
    database = Settings(operator=operator, runs=Path("/runs")).database.removeprefix("sqlite:///")
    mounted = _mounted(objects)
    claim = next(mounted[folder] for folder in PurePosixPath(database).parents if folder in mounted)
    assert claim != operator.launcher.settings.get("volume")
    assert _claim(objects, claim)["spec"]["accessModes"] == ["ReadWriteOnce"]


def _claim(objects: Objects, name: str) -> dict[str, Any]:
    [found] = [one for one in objects if (one["kind"], one["metadata"]["name"]) == ("PersistentVolumeClaim", name)]
    return found


def _mounted(objects: Objects) -> dict[PurePosixPath, str]:
    """The claims that the service mounts, by folder."""
    pod = _pod(objects)
    claims = {one["name"]: one.get("persistentVolumeClaim", {}).get("claimName") for one in pod["volumes"]}
    mounts = pod["containers"][0]["volumeMounts"]
    return {PurePosixPath(one["mountPath"]): name for one in mounts if (name := claims[one["name"]]) is not None}


def test_the_service_takes_the_file_and_its_launcher_the_settings(objects: Objects, tmp_path: Path) -> None:
    path = tmp_path / "hostcore.toml"
    path.write_text(_one(objects, "ConfigMap")["data"]["hostcore.toml"])
    operator = read_operator_file({"HOSTCORE_CONFIG": str(path)})
    assert operator.launcher.use == "kubernetes-pytorchjob"
    settings = structure(PytorchJobLauncher.Settings, dict(operator.launcher.settings))
    container = _pod(objects)["containers"][0]
    assert settings.image == container["image"]
    # Both write the run directory.
    assert settings.run_as_user == _pod(objects)["securityContext"]["runAsUser"]
    if settings.volume is not None:
        assert _mounted(objects)[PurePosixPath(settings.volume_path)] == settings.volume
    [policy] = operator.policies
    assert policy.use == "allow-list"
    structure(AllowList.Settings, dict(policy.settings))


def test_pods_reach_everything_but_what_jobs_may_not_name() -> None:
    path = MANIFESTS / "base" / "network-policy.yaml"
    [policy] = [one for one in yaml.safe_load_all(path.read_text()) if one["spec"]["policyTypes"] == ["Egress"]]
    everywhere, cache = policy["spec"]["egress"]
    assert "ports" not in everywhere
    blocks = [one["ipBlock"] for one in everywhere["to"] if "ipBlock" in one]
    assert {one["cidr"] for one in blocks} == {"0.0.0.0/0", "::/0"}
    assert {ipaddress.ip_network(one) for block in blocks for one in block["except"]} == set(METADATA)
    assert {"namespaceSelector": {}} in everywhere["to"]
    assert cache["to"] == [{"ipBlock": {"cidr": "169.254.20.10/32"}}]
    assert {one["port"] for one in cache["ports"]} == {53}


def test_the_role_allows_what_the_launchers_ask_for_and_nothing_else(kubernetes: Any, tmp_path: Path) -> None:
    for number, cls in enumerate((PytorchJobLauncher, TrainJobLauncher)):
        settings = {"image": "registry.example/trainer:1", "python": sys.executable, "timeout_seconds": 300.0}
        launcher = cls(cls.Settings(kubeconfig=kubernetes.kubeconfig, **settings))
        asked = _whole_life(kubernetes, launcher, f"demo-{number}")
    assert asked
    allowed = {
        (group, resource, verb)
        for rule in _one(_rendered("base"), "Role")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert asked == allowed


def _whole_life(kubernetes: Any, launcher: Any, name: str) -> set[tuple[str, str, str]]:
    """All that may happen to a launch; what the API server was asked until now."""
    kubernetes.fail(Fault(path="/configmaps", method="POST", status=503, after=True))
    with pytest.raises(TransientError):
        launcher.launch(_context(name))
    kubernetes.heal()
    launcher.launch(_context(name))
    handle = launcher.launch(_context(name))
    kubernetes.wait(lambda: launcher.read_logs(handle, "").text)
    launcher.poll(handle)
    launcher.cancel(handle, 0.5)
    kubernetes.forbid_pods("exceeded quota")
    other = launcher.launch(_context(f"{name}-other"))
    kubernetes.wait(lambda: "exceeded quota" in launcher.poll(other).message)
    kubernetes.forbid_pods("")
    kubernetes.fail(Fault(path=f"/{launcher.kind.plural}", method="POST"))
    with pytest.raises(FatalError):  # the ConfigMap is removed again
        launcher.launch(_context(f"{name}-failed"))
    kubernetes.heal()
    return {_asked(one) for one in kubernetes.requests()}


def _context(name: str) -> LaunchContext:
    document = {"trainer": "meta"}
    return launch_context(f"/runs/{name}", [sys.executable, "-c", DEAF], run_id=name, document=document)


def _asked(request: Any) -> tuple[str, str, str]:
    """A request in the words of a role."""
    found = _PATH.fullmatch(request.url.path)
    assert found is not None, request.url.path
    verb = VERBS[request.method.name]
    return (
        found["group"] or "",
        found["plural"] + (found["sub"] or ""),
        verb if found["name"] or verb != "get" else "list",
    )
