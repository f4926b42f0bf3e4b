"""What the launchers for Kubernetes send, as people and clusters read it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
from checkout import ROOT

from hostcore_engines.kubernetes.mounting import mounts_of
from hostcore_engines.kubernetes.names import memory_quantity
from hostcore_engines.kubernetes.settings import KubernetesSettings
from hostcore_hookspecs import FatalError, LaunchContext
from hostcore_hookspecs.job import Resources
from hostcore_service.train.mapping import to_job
from hostcore_service.train.request import read_request
from hostcore_service.train.router import EXAMPLE

Manifests = Callable[..., dict[str, Any]]
Pods = Callable[[Mapping[str, Any]], list[dict[str, Any]]]
Templates = Pods

DOCUMENTATION = ROOT / "docs" / "how-to" / "run-on-kubernetes.md"

EVERYTHING = {
    "volume": "runs",
    "volume_path": "/srv",
    "namespace": "ml",
    "service_account": "trainer",
    "image_pull_secrets": ("registry",),
    "secret_env": {"AWS_SECRET_ACCESS_KEY": "s3/secret"},
    "node_selector": {"gpu": "h100"},
    "gpu_resource": "amd.com/gpu",
}
RESOURCES = Resources(
    num_nodes=4, gpus_per_node=8, cpus_per_node=64, memory_per_node_gb=512, image="ghcr.io/a/b:1", env={"A": "1"}
)


def test_a_job_that_sees_no_volume_lies_in_a_config_map_and_shows_no_value_of_its_variables(
    manifests: Manifests, pods: Pods, kind: str
) -> None:
    made = manifests(resources=Resources(cpus_per_node=1.5, memory_per_node_gb=0.5, env={"TOKEN": "s3cret"}))
    [pod] = pods(made[kind])
    assert (variables(pod)["TOKEN"], variables(pod)["TRAINING_EXTRA_ARGS_JSON"]) == ("********", "{}")
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "1500m", "memory": "500M"}
    assert json.loads(made["ConfigMap"]["data"]["job.json"])["run_id"] == "demo_1"
    assert made["ConfigMap"]["metadata"]["labels"] == made[kind]["metadata"]["labels"]


@pytest.mark.parametrize("kind", ["TrainJob"], indirect=True)
def test_a_trainjob_names_its_runtime_and_patches_what_the_runtime_has_no_say_in(
    manifests: Manifests, kind: str
) -> None:
    made = manifests(settings={"volume": "runs", "runtime": "mine"}, resources=RESOURCES)["TrainJob"]["spec"]
    assert made["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "ClusterTrainingRuntime",
        "name": "mine",
    }
    trainer = made["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"], trainer["image"]) == (4, 8, "ghcr.io/a/b:1")
    amounts = {"cpu": "64", "memory": "512G", "nvidia.com/gpu": "8"}
    assert trainer["resourcesPerNode"] == {"requests": amounts, "limits": amounts}
    [patches] = made["runtimePatches"]
    [node] = patches["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert node["name"] == "node"
    # The operator refuses variables in patches of this container.
    assert set(node["template"]["spec"]["template"]["spec"]["containers"][0]) == {
        "name",
        "securityContext",
        "volumeMounts",
    }


@pytest.mark.parametrize("settings", [{}, EVERYTHING], ids=["least", "most"])
def test_the_published_crd_has_every_field_that_is_sent(
    manifests: Manifests, schemas: Mapping[str, Any], kind: str, settings: dict[str, Any]
) -> None:
    resources = RESOURCES if settings else Resources()
    made = manifests(settings=settings, resources=resources, checkpoint_base_uri="s3://b/runs")[kind]
    assert schemas[f"{kind.lower()}s"].problems(made) == ([], [])


def test_validation_against_the_crd_finds_a_field_that_a_server_would_leave_out(
    manifests: Manifests, schemas: Mapping[str, Any], pods: Pods, kind: str
) -> None:
    made = manifests()[kind]
    made["spec"]["restartPolicies"] = "Never"
    if kind == "PyTorchJob":
        pods(made)[0]["containers"][0]["imagePolicy"] = "Always"
        made["spec"]["nprocPerNode"] = 1
    else:
        made["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["jobs"] = []
        made["spec"]["trainer"]["numProcPerNode"] = "1"
    unknown, invalid = schemas[f"{kind.lower()}s"].problems(made)
    assert len(unknown) == 2
    assert len(invalid) == 1


@pytest.mark.parametrize("settings", [{}, EVERYTHING], ids=["least", "most"])
def test_pods_pass_the_restricted_pod_security_standard(
    manifests: Manifests, pods: Pods, kind: str, settings: dict[str, Any]
) -> None:
    """Field by field: https://kubernetes.io/docs/concepts/security/pod-security-standards/."""
    made = pods(manifests(settings=settings, resources=RESOURCES if settings else Resources())[kind])
    assert made
    for pod in made:
        assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & set(pod)
        for volume in pod["volumes"]:
            assert set(volume) - {"name"} <= {"configMap", "emptyDir", "persistentVolumeClaim"}
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] != 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"sysctls", "seLinuxOptions", "windowsOptions", "appArmorProfile"} & set(security)
        assert "initContainers" not in pod
        for container in pod["containers"]:
            own = container["securityContext"]
            assert own["privileged"] is False
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert own["runAsNonRoot"] is True
            assert own["seccompProfile"] == {"type": "RuntimeDefault"}
            assert own["readOnlyRootFilesystem"] is True
            assert "procMount" not in own
            assert not any("hostPort" in port for port in container.get("ports", ()))


def test_what_is_not_a_rank_alone_is_started_by_torchrun_on_every_node(
    manifests: Manifests, pods: Pods, kind: str
) -> None:
    made = manifests(settings={"volume": "runs"}, resources=Resources(num_nodes=3, gpus_per_node=2))[kind]
    place = ["--node-rank=$(RANK)", "--master-addr=$(MASTER_ADDR)", "--master-port=$(MASTER_PORT)"]
    for pod in pods(made):
        assert pod["containers"][0]["command"] == [
            *("python", "-P", "-m", "torch.distributed.run", "--nnodes=3", "--nproc-per-node=2"),
            *(place if kind == "PyTorchJob" else []),  # else in variables that torchrun reads by itself
            *("--no-python", "python", "-P", "-m", "hostcore", "resume", "/srv/runs/demo_1", "--launched"),
        ]
    if kind == "PyTorchJob":
        assert {name: one["replicas"] for name, one in made["spec"]["pytorchReplicaSpecs"].items()} == {
            "Master": 1,
            "Worker": 2,
        }


def test_of_the_volume_only_the_run_is_mounted_to_write_and_where_this_machine_has_it(
    manifests: Manifests, pods: Pods, kind: str
) -> None:
    for settings, sub_path, others in (
        ({}, "demo_1", []),
        ({"volume_path": "/srv/runs/"}, "demo_1", []),
        ({"volume_path": "/srv"}, "runs/demo_1", [{"mountPath": "/srv", "readOnly": True}]),
    ):
        made = manifests(settings={"volume": "claim", **settings})
        assert "ConfigMap" not in made
        [pod] = pods(made[kind])
        assert {"name": "runs", "persistentVolumeClaim": {"claimName": "claim"}} in pod["volumes"]
        assert of_the_volume(pod) == [*others, {"mountPath": "/srv/runs/demo_1", "subPath": sub_path}]
        assert {"name": "HOSTCORE_RUNS_DIR", "value": "/srv/runs/demo_1"} in pod["containers"][0]["env"]


def test_the_run_whose_checkpoint_a_run_begins_from_is_mounted_to_read(context: Callable[..., LaunchContext]) -> None:
    for begin, seen in (
        ("/srv/runs/before/checkpoints/step-000200.json", ["before"]),
        ("/srv/runs/demo_1/checkpoints/step-000200.json", []),
        ("/srv/runs/.service/jobs.sqlite", []),
        ("/srv/runs/../x", []),
        ("/srv/runs", []),
        ("s3://runs/before", []),
        (True, []),
    ):
        ctx = context(sees=True)
        ctx = attrs.evolve(ctx, document={**ctx.document, "resume_from_checkpoint": begin})
        made = mounts_of(ctx, KubernetesSettings(volume="claim"), document="")
        reads = [one["subPath"] for one in made.mounts if one["name"] == "runs" and one.get("readOnly")]
        assert reads == seen, begin


def of_the_volume(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    mounts = pod["containers"][0]["volumeMounts"]
    return [{key: one[key] for key in one if key != "name"} for one in mounts if one["name"] == "runs"]


def variables(pod: Mapping[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in pod["containers"][0]["env"]}


def test_containers_made_for_the_original_api_find_its_variables(manifests: Manifests, pods: Pods, kind: str) -> None:
    [pod] = pods(
        manifests(
            hyperparams={"model_id": "llama", "config_path": "s3://b/c.yaml", "lr": 2e-5, "flag": True},
            dataset={"parquet_paths": ["s3://data/a.parquet"]},
            batch_size=4,
            max_steps=6000,
            epochs=3,
            accumulate=16,
            checkpoint_every=100,
            checkpoint_base_uri="s3://b/runs/",
            resources=Resources(gpus_per_node=1),
        )[kind]
    )
    found = variables(pod)
    prefix = "s3://b/runs/demo_1/framework=meta"
    expected = {
        "FRAMEWORK": "meta",
        "MODEL_ID": "llama",
        "CONFIG_PATH": "s3://b/c.yaml",
        "RUN_ID": "demo_1",
        "NUM_NODES": "1",
        "GPUS_PER_NODE": "1",
        "CHECKPOINT_BASE_URI": "s3://b/runs",
        "CHECKPOINT_PREFIX": prefix,
        "CHECKPOINTS_URI": f"{prefix}/checkpoints",
        "LOGS_URI": f"{prefix}/logs",
        "CONFIG_URI": f"{prefix}/config",
        "DATASET_URI": "s3://data/a.parquet",
    }
    assert {name: found[name] for name in expected} == expected
    assert json.loads(found["TRAINING_EXTRA_ARGS_JSON"]) == {
        "max_steps": 6000,
        "num_epochs": 3,
        "batch_size": 4,
        "gradient_accumulation": 16,
        "save_steps": 100,
        "lr": 2e-5,
        "flag": True,
    }
    assert "RESUME_FROM_CHECKPOINT" not in found


@pytest.mark.parametrize(
    ("dataset", "uri"),
    [
        ({"parquet_paths": "s3://b/data/"}, "s3://b/data/"),
        ({"paths": ["s3://b/x.jsonl"]}, "s3://b/x.jsonl"),
        ({"index": "s3://b/index.json"}, "s3://b/index.json"),
        ({"paths": ["s3://b/x.jsonl", "s3://b/y.jsonl"]}, None),
        (None, None),
    ],
)
def test_a_dataset_with_one_place_is_told(
    manifests: Manifests, pods: Pods, kind: str, dataset: dict[str, Any] | None, uri: str | None
) -> None:
    [pod] = pods(manifests(dataset=dataset)[kind])
    assert variables(pod).get("DATASET_URI") == uri


def test_what_a_request_of_the_original_api_has_said_arrives_as_it_was_said(
    manifests: Manifests, pods: Pods, kind: str
) -> None:
    request = read_request({**EXAMPLE, "num_nodes": 1, "config_path": "s3://b/c.yaml"})
    mapped = to_job(request, ["*"]).noting(request.extra_args).without_model_id()
    document = mapped.document
    made = manifests(
        trainer=document["trainer"],
        hyperparams=document["hyperparams"],
        dataset=document["dataset"],
        annotations=document["annotations"],
        resources=Resources(**document["resources"]),
    )[kind]
    [pod] = pods(made)
    found = variables(pod)
    assert json.loads(found["TRAINING_EXTRA_ARGS_JSON"]) == EXAMPLE["extra_args"]
    assert (found["MODEL_ID"], found["CONFIG_PATH"]) == (EXAMPLE["model_id"], "s3://b/c.yaml")
    assert found["DATASET_URI"] == EXAMPLE["dataset_uri"]
    assert pod["containers"][0]["resources"]["limits"]["memory"] == "512Gi"


def test_what_the_job_says_of_itself_is_on_the_object_and_not_on_its_pods(
    manifests: Manifests, templates: Templates, kind: str
) -> None:
    labels = {"app.kubernetes.io/name": "hostcore", "team.example/who": "a & b"}
    annotations = {"vault.hashicorp.com/agent-inject": "true", "sidecar.istio.io/inject": "true"}
    bare = manifests(settings={"volume": "runs"}, resources=RESOURCES)[kind]
    made = manifests(settings={"volume": "runs"}, resources=RESOURCES, labels=labels, annotations=annotations)[kind]
    assert labels.keys() <= made["metadata"]["labels"].keys()
    assert annotations.items() <= made["metadata"]["annotations"].items()
    assert templates(made)
    assert templates(made) == templates(bare)


def test_the_job_in_the_cluster_is_marked_by_the_launcher_alone(manifests: Manifests) -> None:
    marked = manifests(labels={"a": "b"}, annotations={"reflector.example/allowed": "true"})["ConfigMap"]
    assert marked["metadata"] == manifests()["ConfigMap"]["metadata"]


def test_a_secret_reaches_the_pod_by_reference(manifests: Manifests, pods: Pods, kind: str) -> None:
    [pod] = pods(manifests(settings={"secret_env": {"KEY": "login/key"}})[kind])
    reference = {"secretKeyRef": {"name": "login", "key": "key"}}
    assert {"name": "KEY", "valueFrom": reference} in pod["containers"][0]["env"]


@pytest.mark.parametrize("base", [None, "/srv/mirror", "file:///srv/mirror", "memory://a"])
def test_several_nodes_with_neither_a_volume_nor_a_store_are_refused(manifests: Manifests, base: str | None) -> None:
    with pytest.raises(FatalError, match="2 nodes have to share") as refused:
        manifests(resources=Resources(num_nodes=2), checkpoint_base_uri=base)
    assert refused.value.pointer == "/resources/num_nodes"
    assert '"volume"' in refused.value.hint
    assert '"checkpoint_base_uri"' in refused.value.hint


def test_several_nodes_with_a_store_share_a_secret_that_no_plan_shows(
    manifests: Manifests, pods: Pods, kind: str, launcher: Callable[..., Any], context: Callable[..., LaunchContext]
) -> None:
    job = {"resources": Resources(num_nodes=2), "checkpoint_base_uri": "s3://bucket/runs"}
    assert {variables(pod)["HOSTCORE_RANKS_SECRET"] for pod in pods(manifests(**job)[kind])} == {"********"}
    made = [launcher()._manifest(context(**job), "meta-demo-1", show_values=True) for _ in range(2)]
    told = [{variables(pod)["HOSTCORE_RANKS_SECRET"] for pod in pods(one)} for one in made]
    assert [len(each) for each in told] == [1, 1], "all nodes of a job have one"
    assert told[0] != told[1]
    for settings, resources in (({"volume": "runs"}, Resources(num_nodes=2)), ({}, Resources())):
        [*others] = pods(manifests(settings=settings, **{**job, "resources": resources})[kind])
        assert all("HOSTCORE_RANKS_SECRET" not in variables(pod) for pod in others), "they need none"
    own = {"secret_env": {"HOSTCORE_RANKS_SECRET": "ranks/secret"}}
    for pod in pods(manifests(settings=own, **job)[kind]):
        [entry] = [one for one in pod["containers"][0]["env"] if one["name"] == "HOSTCORE_RANKS_SECRET"]
        assert entry["valueFrom"] == {"secretKeyRef": {"name": "ranks", "key": "secret"}}


def test_a_pytorchjob_needs_an_image(manifests: Manifests, kind: str) -> None:
    if kind == "TrainJob":
        assert "image" not in manifests(settings={"image": None})[kind]["spec"]["trainer"]  # its runtime has one
        return
    with pytest.raises(FatalError) as refused:
        manifests(settings={"image": None})
    assert refused.value.pointer == "/resources/image"


@pytest.mark.parametrize(
    ("job", "settings", "environment", "namespace"),
    [
        ("mine", "ours", "theirs", "mine"),
        (None, "ours", "theirs", "ours"),
        (None, None, "theirs", "theirs"),
        (None, None, None, "default"),
    ],
)
def test_the_nearest_namespace_wins(
    manifests: Manifests,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    job: str | None,
    settings: str | None,
    environment: str | None,
    namespace: str,
) -> None:
    if environment:
        monkeypatch.setenv("TRAINER_JOBS_NAMESPACE", environment)
    made = manifests(settings={"namespace": settings}, resources=Resources(namespace=job))
    assert {one["metadata"]["namespace"] for one in made.values()} == {namespace}
    assert kind in made


def test_memory_is_asked_for_to_the_byte() -> None:
    gibibytes = [memory_quantity(count * 2**30 / 10**9) for count in range(1, 4097)]
    assert gibibytes == [f"{count}Gi" for count in range(1, 4097)]
    written = [memory_quantity(gb) for gb in (512, 1.5, 0.5, 0.0105, 1.0000001)]
    assert written == ["512G", "1500M", "500M", "10500000", "1000000100"]


@pytest.mark.parametrize("kind", ["PyTorchJob"], indirect=True)
def test_restarts_are_for_those_who_want_them(manifests: Manifests, kind: str) -> None:
    made = manifests(settings={"restart_policy": "OnFailure"})[kind]["spec"]
    assert made["pytorchReplicaSpecs"]["Master"]["restartPolicy"] == "OnFailure"
    assert made["runPolicy"]["backoffLimit"] == 3


@pytest.mark.parametrize("kind", ["PyTorchJob"], indirect=True)
def test_the_documentation_shows_what_is_sent(launcher: Any, context: Any, kind: str) -> None:
    page = DOCUMENTATION.read_text()
    job, manifest = re.findall(
        r"^```\{code-block\} json\n:caption: (?:job.json|PyTorchJob)\n\n(.*?)^```$", page, re.M | re.S
    )
    document = json.loads(job)
    settings = {key: value for key, value in document["launcher"].items() if key != "use"}
    ctx = context(
        name="digits-1",
        run_id=document["run_id"],
        trainer=document["trainer"],
        dataset=document["dataset"],
        batch_size=document["dataset"]["batch_size"],
        max_steps=document["max_steps"],
        checkpoint_base_uri=document["checkpoint_base_uri"],
        resources=Resources(**document["resources"]),
    )
    plan = launcher(image=None, **settings).plan(ctx)
    assert plan.summary == f"{kind} digits-1 in namespace ml, 1 node with 1 GPU"
    shown, sent = json.loads(manifest), json.loads(plan.document[plan.document.index("\n{") :])
    assert shown == sent


def test_an_environment_is_built_by_a_pod_only_if_that_is_allowed(launcher: Callable, context: Callable) -> None:
    ctx = context()
    ctx = attrs.evolve(ctx, document={**ctx.document, "environment": {"requirements": ["meta"]}})
    with pytest.raises(FatalError, match="a pod would build the environment") as caught:
        launcher().plan(ctx)
    assert caught.value.pointer == "/environment"
    assert '"resources": {"image"' in caught.value.hint
    assert '"build_environments": true' in caught.value.hint
    assert '\\"environment\\"' in launcher(build_environments=True).plan(ctx).document


def test_an_environment_of_the_image_is_preferred_to_one_that_a_pod_builds(
    launcher: Callable, context: Callable
) -> None:
    ctx = context()
    ctx = attrs.evolve(ctx, document={**ctx.document, "environment": {"interpreter": "/opt/trainer/bin/python"}})
    assert "/opt/trainer/bin/python" in launcher().plan(ctx).document
    for built in ({"requirements": ["meta"]}, {"lock": "/srv/pylock.toml"}):
        with pytest.raises(FatalError, match="a pod would build the environment"):
            launcher().plan(attrs.evolve(ctx, document={**ctx.document, "environment": built}))
