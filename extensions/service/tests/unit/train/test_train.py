"""``/train``, as its specification has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
from fastapi.testclient import TestClient

from hostcore.plugins.describe import Description
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.plan import PluginRef
from hostcore_service.descriptions import Ask
from hostcore_service.train.mapping import job_name, to_job
from hostcore_service.train.request import TrainingJobRequest, read_request
from hostcore_service.train.router import EXAMPLE, status_of

REQUEST = {
    "framework": "tiny",
    "model_id": "tiny-1b",
    "run_id": "meta_demo_001",
    "checkpoint_base_uri": "s3://bucket/runs/",
    "dataset_uri": "s3://bucket/data/v1/",
}
Connect = Callable[..., TestClient]


@pytest.fixture
def connect(client: Connect) -> Connect:
    """``connect("lr", http={…})``: a client of a service whose trainers take these hyperparameters; else, any."""

    def make(*takes: str, describe: Ask | None = None, **sections: Any) -> TestClient:
        schema = {"additionalProperties": False, "properties": {key: {} for key in takes}} if takes else None

        def told(kind: str, name: str, _: Any) -> Description:
            return Description(ref=PluginRef(kind=kind, name=name, value="tiny:Trainer"), settings_schema=schema)

        return client(describe=describe or told, **{"launcher": "stuck", **sections})

    return make


def train(client: TestClient, **changes: Any) -> dict[str, Any]:
    """Submit a job, which has to be taken; the job that has become of it."""
    request = {**REQUEST, **changes}
    answer = client.post("/train", json=request)
    assert answer.status_code == 201, answer.text
    job: dict[str, Any] = client.get(f"/v1/jobs/{request['run_id']}").json()["job"]
    return job


def refused(client: TestClient, **changes: Any) -> list[dict[str, Any]]:
    """Submit a job, which has to be a bad request; all that is wrong with it."""
    answer = client.post("/train", json={**REQUEST, **changes})
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), answer.text
    errors: list[dict[str, Any]] = answer.json()["errors"]
    return errors


def test_a_job_is_created_and_found_by_its_name_as_the_specification_says(connect: Connect) -> None:
    client = connect()
    answer = client.post("/train", json=REQUEST)
    assert (answer.status_code, answer.headers["location"]) == (201, "/train/tiny-meta-demo-001")
    assert answer.json() == {
        "name": "tiny-meta-demo-001",
        "status": "submitted",
        "detail": "Job created",
        "framework": "tiny",
        "run_id": "meta_demo_001",
    }
    assert client.get(answer.headers["location"]).json()["name"] == "tiny-meta-demo-001"
    client.post("/v1/jobs", json={"trainer": "tiny", "max_steps": 3, "run_id": "Other_Run"})
    for name in ("other-run", "Other_Run"):  # of the other route
        assert client.get(f"/train/{name}").json()["run_id"] == "Other_Run"
    for name in ("nothing", "%00"):
        missing = client.get(f"/train/{name}")
        assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")


def test_the_example_of_the_specification_is_understood_field_by_field(connect: Connect) -> None:
    client = connect(http={"env": ["EXPERIMENT_*"]})
    job = train(client, **{**EXAMPLE, "framework": "tiny"})
    assert job["hyperparams"] == {"model_id": "meta-llama-3-70b", "lr": 2e-5}
    assert job["dataset"]["parquet_paths"] == "s3://deepfinery-datasets/aml/v1/"
    assert (job["max_steps"], job["accumulate"]) == (6000, 16)
    assert job["checkpoint_base_uri"] == "s3://deepfinery-training/runs"
    assert job["resume_from_checkpoint"] == "auto"
    assert job["labels"] == {"deepfinery.com/team": "aml"}
    assert json.loads(job["annotations"]["hostcore/extra-args"]) == EXAMPLE["extra_args"]
    resources = job["resources"]
    assert resources["memory_per_node_gb"] == 549.755813888  # 512 GiB, to the byte
    assert (resources["num_nodes"], resources["gpus_per_node"], resources["cpus_per_node"]) == (4, 8, 64)
    assert resources["env"] == {"EXPERIMENT_NAME": "meta-demo"}

    for change, name in (
        ({}, ""),
        ({"framework": "some-dist/meta"}, ""),
        ({"job_name": "My_Job; rm -rf /"}, "my-job-rm--rf"),
    ):
        assert job_name(read_request({**EXAMPLE, **change})) == (name or "meta-meta-demo-001")

    operation = client.get("/openapi.json").json()["paths"]["/train"]["post"]
    body = operation["requestBody"]["content"]["application/json"]
    fields = [field.name for field in attrs.fields(TrainingJobRequest)]
    assert list(body["schema"]["properties"]) == fields
    assert all(body["schema"]["properties"][name]["description"] for name in fields)
    assert body["examples"]["specification"]["value"] == EXAMPLE
    assert {"201", "400", "401", "500"} <= operation["responses"].keys()


#: A change of the request, and the places of what is wrong with it.
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"num_nodes": "4", "gpus_per_node": True, "env": {"A": 1}, "modle_id": "x", "run_id": "../x"},
        ["/env/A", "/gpus_per_node", "/modle_id", "/num_nodes", "/run_id"],
    ),
    ({"framework": "nobody"}, ["/framework"]),
    ({"framework": "module:Trainer"}, ["/framework"]),
    ({"dataset_uri": "/etc/"}, ["/dataset_uri"]),
    ({"dataset_uri": "http://127.0.0.1/x.jsonl"}, ["/dataset_uri"]),
    ({"checkpoint_base_uri": "file:///tmp/"}, ["/checkpoint_base_uri"]),
    ({"config_path": "/etc/passwd"}, ["/config_path"]),
    ({"image": "evil"}, ["/image"]),
    ({"env": {"LD_PRELOAD": "x"}}, ["/env/LD_PRELOAD"]),
    *(
        ({"extra_args": args}, [f"/extra_args/{place}"])
        for args, place in (
            ({"max_steps": "many"}, "max_steps"),
            ({"num_epochs": 0}, "num_epochs"),
            ({"batch_size": 0}, "batch_size"),
            ({"dataloader_workers": -1}, "dataloader_workers"),
            ({"dataloader_workers": 1, "dataset": {"workers": 2}}, "dataset/workers"),
            ({"eval_steps": 0.5}, "eval_steps"),
            ({"eval_steps": 1, "validate_every": 2}, "validate_every"),
            ({"dataset": {"shuffle": 1}}, "dataset/shuffle"),
            ({"dataset": 1}, "dataset"),
            ({"a/b": "file:///x"}, "a~1b"),
            ({"save_steps": 1, "checkpoint_every": 2}, "checkpoint_every"),
            *(({key: "x"}, key) for key in ("launcher", "run_id", "resources", "model_id")),
        )
    ),
]


def test_everything_that_is_wrong_with_the_job_is_said_of_the_request(connect: Connect) -> None:
    client = connect()
    for change, pointers in WRONG:
        errors = refused(client, **change)
        assert sorted(one["pointer"] for one in errors) == pointers, change
        assert "modle_id" not in change or 'did you mean "model_id"?' in [one["hint"] for one in errors]
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_a_second_job_of_a_name_is_a_bad_request_with_the_way_out(connect: Connect) -> None:
    client = connect()
    train(client)
    for change in ({}, {"run_id": "META-demo-001"}, {"job_name": "another"}):
        (error,) = refused(client, **change)
        assert (error["pointer"], "already exists" in error["detail"]) == ("/run_id", True)
        assert "/v1/jobs/meta_demo_001:resume" in error["hint"]
    train(client, job_name="nightly", run_id="first")
    (error,) = refused(client, job_name="nightly", run_id="second")
    assert (error["pointer"], error["hint"].startswith("choose another job_name; ")) == ("/job_name", True)
    (client.app.state.service.settings.runs / "foreign").mkdir()  # type: ignore[attr-defined]
    (error,) = refused(client, run_id="foreign")
    assert (error["pointer"], ":resume" in str(error)) == ("/run_id", False)
    assert "which was not submitted here" in error["detail"]


def test_what_is_not_wrong_with_the_job_is_no_bad_request(connect: Connect) -> None:
    client = connect(http={"max_submitted": 1})
    headers = {"Idempotency-Key": "k"}
    first, second = (client.post("/train", json=REQUEST, headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code, second.headers["idempotent-replayed"]) == (201, 201, "true")
    assert first.json()["name"] == second.json()["name"]
    assert client.post("/train", json={**REQUEST, "run_id": "b"}, headers=headers).status_code == 422
    full = client.post("/train", json={**REQUEST, "run_id": "second"})
    assert (full.status_code, full.headers["retry-after"]) == (429, "60")
    assert full.json()["errors"][0]["code"] == "service.full"
    defect = connect(describe=lambda *_: 1 / 0).post("/train", json=REQUEST)
    assert (defect.status_code, defect.headers["content-type"]) == (500, "application/problem+json")


def test_a_trainer_is_given_what_it_takes_and_a_job_with_anything_else_does_not_spend_its_run_id(
    connect: Connect,
) -> None:
    client = connect("lr", "seed")
    job = train(client, run_id="a", extra_args={"lr": 1}, annotations={"a": "b", "hostcore/model-id": "another"})
    assert job["hyperparams"] == {"lr": 1}
    assert job["annotations"] == {"a": "b", "hostcore/model-id": "tiny-1b", "hostcore/extra-args": '{"lr": 1}'}
    errors = refused(client, extra_args={"lrs": 2e-5, "model_ids": 1.0, "max_steps": 5})
    assert [(one["pointer"], one["hint"]) for one in errors] == [
        ("/extra_args/lrs", 'did you mean "lr"?'),
        ("/extra_args/model_ids", "extra_args may set lr"),  # a request has no word for the hyperparameter seed
    ]
    train(client, extra_args={"lr": 2e-5})

    path = {"config_path": "s3://bucket/config.yaml"}
    assert (
        train(connect("config_path", "model_id"), run_id="b", **path)["hyperparams"]["config_path"]
        == path["config_path"]
    )
    without = connect("model_id")
    answer = without.post("/train", json={**REQUEST, "run_id": "c", **path})
    assert (answer.status_code, "has no hyperparameter config_path" in answer.json()["detail"]) == (201, True)
    job = without.get("/v1/jobs/c").json()["job"]
    assert ("config_path" in job["hyperparams"], job["annotations"]["hostcore/config-path"]) == (
        False,
        path["config_path"],
    )
    (error,) = refused(without, run_id="d", config_path="/etc/passwd")
    assert error["pointer"] == "/config_path", "it is a place whether or not the trainer takes it"


VALIDATION = {"source": "hostcore-builtin-plugins/json", "paths": "s3://bucket/validation.jsonl"}
#: A change of the request, and what the job has of it by pointer.
MAPPED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"resume_from_checkpoint": True}, {"resume_from_checkpoint": True}),
    ({}, {"resume_from_checkpoint": "auto", "hyperparams": {"model_id": "tiny-1b"}}),
    *(
        ({"dataset_uri": uri}, {"dataset/source": f"hostcore-builtin-plugins/{source}", f"dataset/{key}": uri})
        for uri, source, key in (
            ("s3://b/data/", "parquet", "parquet_paths"),
            ("s3://b/data.v1/*.parquet", "parquet", "parquet_paths"),
            ("s3://b/x.jsonl", "json", "paths"),
            ("s3://b/*.JSON.gz", "json", "paths"),
            ("s3://bucket/x.csv?versionId=1", "csv", "paths"),
            ("s3://b/x.arrow", "arrow", "paths"),
        )
    ),
    ({"extra_args": {"batch_size": 8, "dataloader_workers": 4}}, {"dataset/batch_size": 8, "dataset/workers": 4}),
    ({"extra_args": {"num_epochs": 3, "save_steps": 50}}, {"epochs": 3, "checkpoint_every": 50}),
    ({"extra_args": {"gradient_accumulation": 2, "logging_steps": 20}}, {"accumulate": 2, "metric_every": 20}),
    ({"extra_args": {"eval_steps": 100, "validation": VALIDATION}}, {"validate_every": 100}),
    (
        {"extra_args": {"dataset_text_field": "text", "lr": 1e-4, "max_seq_len": 2048}},
        {"hyperparams": {"model_id": "tiny-1b", "dataset_text_field": "text", "lr": 1e-4, "max_seq_len": 2048}},
    ),
    (
        {"extra_args": {"": 1, "a/b": 2, "a~1b": {"/c": 3}, "dataset": {"": 4, "x/y": 5}}},
        {"hyperparams": {"model_id": "tiny-1b", "": 1, "a/b": 2, "a~1b": {"/c": 3}}},
    ),
]


def test_the_specifications_words_are_keys_of_the_job(connect: Connect) -> None:
    client = connect()
    for number, (change, expected) in enumerate(MAPPED):
        job = train(client, run_id=f"run-{number}", **change)
        for pointer, value in expected.items():
            section, _, key = pointer.partition("/")
            assert (job[section][key] if key else job[section]) == value, change
    assert (job["dataset"][""], job["dataset"]["x/y"]) == (4, 5), "any name is one"
    assert "hostcore/extra-args" not in client.get("/v1/jobs/run-1").json()["job"].get("annotations", {})

    answer = client.post("/train", json={**REQUEST, "extra_args": {"eval_steps": 100}})
    assert answer.json()["detail"].startswith("Job created; eval_steps has no effect without validation data")
    job = client.get("/v1/jobs/meta_demo_001").json()["job"]
    assert (job.get("validate_every") or None, job["hyperparams"]) == (None, {"model_id": "tiny-1b"})
    assert json.loads(job["annotations"]["hostcore/extra-args"]) == {"eval_steps": 100}

    allowing = connect(http={"extra_args": ["max_steps", "lr"]})
    errors = refused(allowing, run_id="x", extra_args={"max_steps": 1, "lr": 1, "seed": 2, "other": 3})
    assert [one["pointer"] for one in errors] == ["/extra_args/seed", "/extra_args/other"]


@pytest.mark.parametrize(
    ("pointer", "hint", "said", "shown"),
    [
        ("/resources/image", '"resources": {"image": "a:1"}, or ask', "/image", '"image": "a:1", or ask'),
        ("/resources/num_nodes", "name fewer than resources.num_nodes", "/num_nodes", "name fewer than num_nodes"),
        ("/launcher", 'name another: "launcher": "local"', "", "it is the operator's; POST /v1/jobs takes a whole job"),
        ("/labels/x", 'shorten it in "labels"', "/labels/x", 'shorten it in "labels"'),
    ],
)
def test_hints_of_a_launcher_name_the_fields_of_the_request(pointer: str, hint: str, said: str, shown: str) -> None:
    [error] = to_job(read_request(REQUEST), ["*"]).as_said(HostcoreError("no", pointer=pointer, hint=hint))
    assert (error.pointer, error.hint) == (said, shown)


PYTORCH, TRAINJOB = "hostcore-builtin-plugins/kubernetes-pytorchjob", "kubernetes-trainjob"
NEW = {"just_created": True}
#: A job, its launcher, how it is shown, and whether that is asked by the request that has made it.
STANDING: list[tuple[dict[str, Any], str, tuple[str, str], Mapping[str, bool]]] = [
    ({"status": "submitted"}, PYTORCH, ("submitted", "PyTorchJob submitted"), {}),
    ({"status": "running"}, PYTORCH, ("running", "PyTorchJob pods active"), {}),
    ({"status": "succeeded"}, PYTORCH, ("succeeded", "PyTorchJob completed"), {}),
    ({"status": "failed"}, PYTORCH, ("failed", "PyTorchJob failed"), {}),
    ({"status": "failed", "detail": "OOMKilled"}, PYTORCH, ("failed", "OOMKilled"), {}),
    ({"status": "running"}, TRAINJOB, ("running", "TrainJob pods active"), {}),
    ({"status": "running"}, "slurm", ("running", "Job running"), {}),
    ({"status": "submitted", "detail": "waits for a node"}, "slurm", ("submitted", "waits for a node"), {}),
    ({"status": "cancelled", "detail": "by ada"}, "local", ("failed", "cancelled: by ada"), {}),
    ({"status": "preempted"}, "local", ("failed", "preempted"), {}),
    ({"status": "lost", "detail": "no sign of life"}, "local", ("failed", "lost: no sign of life"), {}),
    ({"phase": "launched"}, PYTORCH, ("submitted", "PyTorchJob created"), NEW),
    ({"phase": "launching"}, PYTORCH, ("submitted", "PyTorchJob submitted"), NEW),  # there is no object yet
    ({"phase": "queued"}, "slurm", ("submitted", "Job created"), NEW),
]


def test_a_job_is_shown_in_the_words_of_the_specification(a_job: Callable[..., Any]) -> None:
    for fields, launcher, expected, asked in STANDING:
        shown = status_of(a_job("a", launcher=launcher, **fields), **asked)
        assert (shown.status, shown.detail) == expected, fields
