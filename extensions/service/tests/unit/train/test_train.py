"""``/train``, as its specification has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
from fastapi.testclient import TestClient

from hostcore.plugins.describe import Description
from hostcore_hookspecs.plan import PluginRef
from hostcore_service.descriptions import Ask
from hostcore_service.train.router import EXAMPLE

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
    """``connect(http={…})``: a client of a service whose trainers declare ``model_id``, unless it is told otherwise."""

    def make(*, schema: Mapping[str, Any] | None = None, describe: Ask | None = None, **sections: Any) -> TestClient:
        def told(kind: str, name: str, _: Any) -> Description:
            return Description(ref=PluginRef(kind=kind, name=name, value="tiny:Trainer"), settings_schema=schema)

        return client(describe=describe or told, **{"launcher": "stuck", **sections})

    return make


def job_of(client: TestClient, run_id: str = "meta_demo_001") -> dict[str, Any]:
    job: dict[str, Any] = client.get(f"/v1/jobs/{run_id}").json()["job"]
    return job


def pointers(answer: Any) -> list[str]:
    assert answer.status_code == 400, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return [one["pointer"] for one in answer.json()["errors"]]


def test_a_job_is_created_as_the_specification_says(connect: Connect) -> None:
    client = connect()
    answer = client.post("/train", json=REQUEST)
    assert answer.status_code == 201
    assert answer.headers["location"] == "/train/tiny-meta-demo-001"
    assert answer.json() == {
        "name": "tiny-meta-demo-001",
        "status": "submitted",
        "detail": "Job created",
        "framework": "tiny",
        "run_id": "meta_demo_001",
    }
    assert client.get(answer.headers["location"]).json()["name"] == "tiny-meta-demo-001"


def test_the_example_of_the_specification_is_understood_field_by_field(connect: Connect) -> None:
    client = connect(http={"env": ["EXPERIMENT_*"]})
    answer = client.post("/train", json={**EXAMPLE, "framework": "tiny"})
    assert answer.status_code == 201, answer.text
    job = job_of(client)
    assert job["hyperparams"] == {"model_id": "meta-llama-3-70b", "lr": 2e-5}
    assert job["dataset"]["parquet_paths"] == "s3://deepfinery-datasets/aml/v1/"
    assert (job["max_steps"], job["accumulate"]) == (6000, 16)
    assert job["checkpoint_base_uri"] == "s3://deepfinery-training/runs"
    assert job["resume_from_checkpoint"] == "auto"
    assert job["labels"] == {"deepfinery.com/team": "aml"}
    resources = job["resources"]
    assert resources["memory_per_node_gb"] == 549.755813888  # 512 GiB, to the byte
    assert (resources["num_nodes"], resources["gpus_per_node"], resources["cpus_per_node"]) == (4, 8, 64)
    assert resources["env"] == {"EXPERIMENT_NAME": "meta-demo"}


def test_the_specifications_name_comes_of_its_framework_and_run() -> None:
    from hostcore_service.train.mapping import job_name
    from hostcore_service.train.request import read_request

    assert job_name(read_request(EXAMPLE)) == "meta-meta-demo-001"
    assert job_name(read_request({**EXAMPLE, "framework": "some-dist/meta"})) == "meta-meta-demo-001"
    assert job_name(read_request({**EXAMPLE, "job_name": "My_Job; rm -rf /"})) == "my-job-rm--rf"


def test_everything_that_is_wrong_is_told_at_once_and_of_the_request(connect: Connect) -> None:
    client = connect()
    body = {**REQUEST, "num_nodes": "4", "gpus_per_node": True, "env": {"A": 1}, "modle_id": "x", "run_id": "../x"}
    del body["model_id"]
    answer = client.post("/train", json=body)
    assert sorted(pointers(answer)) == ["/env/A", "/gpus_per_node", "/modle_id", "/num_nodes", "/run_id"]
    assert any(one["hint"] == 'did you mean "model_id"?' for one in answer.json()["errors"])


#: A change of the request, and the place of what is wrong with it.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"framework": "nobody"}, "/framework"),
    ({"framework": "module:Trainer"}, "/framework"),
    ({"dataset_uri": "/etc/"}, "/dataset_uri"),
    ({"dataset_uri": "http://127.0.0.1/x.jsonl"}, "/dataset_uri"),
    ({"checkpoint_base_uri": "file:///tmp/"}, "/checkpoint_base_uri"),
    ({"config_path": "/etc/passwd"}, "/config_path"),
    ({"image": "evil"}, "/image"),
    ({"env": {"LD_PRELOAD": "x"}}, "/env/LD_PRELOAD"),
    ({"extra_args": {"max_steps": "many"}}, "/extra_args/max_steps"),
    ({"extra_args": {"num_epochs": 0}}, "/extra_args/num_epochs"),
    ({"extra_args": {"batch_size": 0}}, "/extra_args/batch_size"),
    ({"extra_args": {"dataloader_workers": -1}}, "/extra_args/dataloader_workers"),
    ({"extra_args": {"dataloader_workers": 1, "dataset": {"workers": 2}}}, "/extra_args/dataset/workers"),
    ({"extra_args": {"eval_steps": 0.5}}, "/extra_args/eval_steps"),
    ({"extra_args": {"eval_steps": 1, "validate_every": 2}}, "/extra_args/validate_every"),
    ({"extra_args": {"dataset": {"shuffle": 1}}}, "/extra_args/dataset/shuffle"),
    ({"extra_args": {"dataset": 1}}, "/extra_args/dataset"),
    ({"extra_args": {"a/b": "file:///x"}}, "/extra_args/a~1b"),
    ({"extra_args": {"save_steps": 1, "checkpoint_every": 2}}, "/extra_args/checkpoint_every"),
    *(({"extra_args": {key: "x"}}, f"/extra_args/{key}") for key in ("launcher", "run_id", "resources", "model_id")),
]


def test_what_is_wrong_with_the_job_is_said_of_the_request(connect: Connect) -> None:
    client = connect()
    for change, pointer in WRONG:
        assert pointers(client.post("/train", json={**REQUEST, **change})) == [pointer], change
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_a_second_job_of_a_name_is_a_bad_request(connect: Connect) -> None:
    client = connect()
    assert client.post("/train", json=REQUEST).status_code == 201
    for body in (REQUEST, {**REQUEST, "run_id": "META-demo-001"}, {**REQUEST, "job_name": "another"}):
        answer = client.post("/train", json=body)
        assert pointers(answer) == ["/run_id"]
        assert "already exists" in answer.json()["detail"]
        assert "/v1/jobs/meta_demo_001:resume" in answer.json()["errors"][0]["hint"]


def test_a_second_job_of_a_chosen_name_needs_another_name(connect: Connect) -> None:
    client = connect()
    assert client.post("/train", json={**REQUEST, "job_name": "nightly"}).status_code == 201
    answer = client.post("/train", json={**REQUEST, "job_name": "nightly", "run_id": "another"})
    assert pointers(answer) == ["/job_name"]
    assert answer.json()["errors"][0]["hint"].startswith("choose another job_name; ")


def test_a_run_that_was_not_submitted_here_is_in_the_way_and_not_to_be_resumed(connect: Connect) -> None:
    client = connect()
    (client.app.state.service.settings.runs / REQUEST["run_id"]).mkdir()  # type: ignore[attr-defined]
    answer = client.post("/train", json=REQUEST)
    assert pointers(answer) == ["/run_id"]
    assert "which was not submitted here" in answer.json()["detail"]
    assert ":resume" not in answer.text


def test_what_is_not_wrong_with_the_job_is_no_bad_request(connect: Connect) -> None:
    client = connect(http={"max_submitted": 1})
    assert client.post("/train", json=REQUEST).status_code == 201
    answer = client.post("/train", json={**REQUEST, "run_id": "second"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
    assert answer.json()["errors"][0]["code"] == "service.full"


def test_the_same_key_makes_one_job(connect: Connect) -> None:
    client = connect()
    headers = {"Idempotency-Key": "k"}
    first, second = (client.post("/train", json=REQUEST, headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["name"] == second.json()["name"]
    assert second.headers["idempotent-replayed"] == "true"
    assert client.post("/train", json={**REQUEST, "run_id": "b"}, headers=headers).status_code == 422


def test_a_trainer_without_model_id_gets_none(connect: Connect) -> None:
    client = connect(schema={"properties": {"lr": {}}, "additionalProperties": False})
    body = {**REQUEST, "extra_args": {"lr": 1}, "annotations": {"a": "b", "hostcore/model-id": "another"}}
    assert client.post("/train", json=body).status_code == 201
    assert job_of(client)["hyperparams"] == {"lr": 1}
    told = {"hostcore/model-id": "tiny-1b", "hostcore/extra-args": '{"lr": 1}'}
    assert job_of(client)["annotations"] == {"a": "b", **told}


def test_a_config_path_is_taken_for_every_trainer(connect: Connect) -> None:
    body = {**REQUEST, "config_path": "s3://bucket/config.yaml"}
    reads = connect(schema={"properties": {"config_path": {}, "model_id": {}}, "additionalProperties": False})
    assert reads.post("/train", json=body).status_code == 201
    assert job_of(reads)["hyperparams"]["config_path"] == "s3://bucket/config.yaml"


def test_a_trainer_without_config_path_gets_none_and_the_answer_says_so(connect: Connect) -> None:
    client = connect(schema={"properties": {"model_id": {}}, "additionalProperties": False})
    answer = client.post("/train", json={**REQUEST, "config_path": "s3://bucket/config.yaml"})
    assert answer.status_code == 201, answer.text
    assert "has no hyperparameter config_path" in answer.json()["detail"]
    job = job_of(client)
    assert "config_path" not in job["hyperparams"]
    assert job["annotations"]["hostcore/config-path"] == "s3://bucket/config.yaml"


def test_a_config_path_is_a_place_whether_or_not_the_trainer_takes_it(connect: Connect) -> None:
    client = connect(schema={"properties": {"model_id": {}}, "additionalProperties": False})
    client.post("/train", json={**REQUEST, "run_id": "known"})  # what its trainer takes is known from now on
    answer = client.post("/train", json={**REQUEST, "config_path": "/etc/passwd"})
    assert answer.status_code == 400, answer.text
    assert [one["pointer"] for one in answer.json()["errors"]] == ["/config_path"]


def test_the_job_keeps_the_extra_args_as_they_were_said(connect: Connect) -> None:
    client = connect(http={"env": ["EXPERIMENT_*"]})
    client.post("/train", json={**EXAMPLE, "framework": "tiny"})
    client.post("/train", json=REQUEST | {"run_id": "b"})
    assert json.loads(job_of(client)["annotations"]["hostcore/extra-args"]) == EXAMPLE["extra_args"]
    assert "hostcore/extra-args" not in job_of(client, "b").get("annotations", {})


def test_any_name_of_an_extra_arg_is_a_hyperparameter_as_it_is(connect: Connect) -> None:
    client = connect()
    args = {"": 1, "a/b": 2, "a~1b": {"/c": 3}, "dataset": {"": 4, "x/y": 5}}
    assert client.post("/train", json={**REQUEST, "extra_args": args}).status_code == 201
    job = job_of(client)
    assert job["hyperparams"] == {"model_id": "tiny-1b", "": 1, "a/b": 2, "a~1b": {"/c": 3}}
    assert (job["dataset"][""], job["dataset"]["x/y"]) == (4, 5)


def test_extra_args_are_the_operators_to_allow(connect: Connect) -> None:
    client = connect(http={"extra_args": ["max_steps", "lr"]})
    body = {**REQUEST, "extra_args": {"max_steps": 1, "lr": 1, "seed": 2, "other": 3}}
    assert pointers(client.post("/train", json=body)) == ["/extra_args/seed", "/extra_args/other"]


SOURCES = [
    ("s3://b/data/", "parquet", "parquet_paths"),
    ("s3://b/data.v1/*.parquet", "parquet", "parquet_paths"),
    ("s3://b/x.jsonl", "json", "paths"),
    ("s3://b/*.JSON.gz", "json", "paths"),
    ("s3://bucket/x.csv?versionId=1", "csv", "paths"),
    ("s3://b/x.arrow", "arrow", "paths"),
]


def test_the_end_of_the_dataset_says_what_reads_it(connect: Connect) -> None:
    client = connect()
    for number, (uri, source, key) in enumerate(SOURCES):
        request = {**REQUEST, "dataset_uri": uri, "run_id": f"run-{number}"}
        assert client.post("/train", json=request).status_code == 201, uri
        dataset = job_of(client, request["run_id"])["dataset"]
        assert (dataset["source"], dataset[key]) == (f"hostcore-builtin-plugins/{source}", uri)


def test_the_specifications_extra_args_are_keys_of_the_job(connect: Connect) -> None:
    client = connect()
    validation = {"source": "hostcore-builtin-plugins/json", "paths": "s3://bucket/validation.jsonl"}
    mapped = {
        "dataset_text_field": "text",
        "batch_size": 8,
        "num_epochs": 3,
        "lr": 1e-4,
        "max_seq_len": 2048,
        "gradient_accumulation": 2,
        "save_steps": 50,
        "dataloader_workers": 4,
        "eval_steps": 100,
        "logging_steps": 20,
        "validation": validation,
    }
    assert client.post("/train", json={**REQUEST, "extra_args": mapped}).status_code == 201
    job = job_of(client)
    hyperparams = {"model_id": "tiny-1b", "dataset_text_field": "text", "lr": 1e-4, "max_seq_len": 2048}
    assert job["hyperparams"] == hyperparams
    assert (job["dataset"]["batch_size"], job["dataset"]["workers"]) == (8, 4)
    assert (job["epochs"], job["accumulate"], job["checkpoint_every"], job["validate_every"]) == (3, 2, 50, 100)
    assert job["metric_every"] == 20


def test_eval_steps_without_validation_data_has_no_effect_and_that_is_said(connect: Connect) -> None:
    client = connect()
    answer = client.post("/train", json={**REQUEST, "extra_args": {"eval_steps": 100}})
    assert answer.status_code == 201
    assert answer.json()["detail"].startswith("Job created; eval_steps has no effect without validation data")
    job = job_of(client)
    assert not job.get("validate_every")
    assert job["hyperparams"] == {"model_id": "tiny-1b"}
    assert json.loads(job["annotations"]["hostcore/extra-args"]) == {"eval_steps": 100}


def test_no_hint_names_what_a_request_cannot_say(connect: Connect) -> None:
    schema = {"additionalProperties": False, "properties": {"model_id": {}, "seed": {}, "lr": {}, "config_path": {}}}
    client = connect(schema=schema)
    answer = client.post("/train", json={**REQUEST, "extra_args": {"model_ids": 1, "config_paths": 2}})
    assert pointers(answer) == ["/extra_args/model_ids", "/extra_args/config_paths"]
    assert [one["hint"] for one in answer.json()["errors"]] == ["extra_args may set lr"] * 2


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
    from hostcore_hookspecs.errors import HostcoreError
    from hostcore_service.train.mapping import to_job
    from hostcore_service.train.request import read_request

    [error] = to_job(read_request(REQUEST), ["*"]).as_said(HostcoreError("no", pointer=pointer, hint=hint))
    assert (error.pointer, error.hint) == (said, shown)


def test_resuming_needs_a_checkpoint_and_not_resuming_does_not_forbid_one(connect: Connect) -> None:
    client = connect()
    client.post("/train", json={**REQUEST, "resume_from_checkpoint": True})
    client.post("/train", json={**REQUEST, "run_id": "b"})
    assert [job_of(client, one)["resume_from_checkpoint"] for one in ("meta_demo_001", "b")] == [True, "auto"]


def test_a_job_that_is_not_there_is_not_found(connect: Connect) -> None:
    client = connect()
    answer = client.get("/train/nothing")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert client.get("/train/%00").status_code == 404


def test_jobs_of_the_other_route_are_found_by_name(connect: Connect) -> None:
    client = connect()
    client.post("/v1/jobs", json={"trainer": "tiny", "max_steps": 3, "run_id": "Other_Run"})
    for name in ("other-run", "Other_Run"):
        assert client.get(f"/train/{name}").json()["run_id"] == "Other_Run"


def test_what_the_service_does_not_expect_is_its_own_failure(connect: Connect) -> None:
    client = connect(describe=lambda *_: 1 / 0)
    answer = client.post("/train", json=REQUEST)
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_document_shows_every_field_and_the_specifications_example(connect: Connect) -> None:
    operation = connect().get("/openapi.json").json()["paths"]["/train"]["post"]
    body = operation["requestBody"]["content"]["application/json"]
    from hostcore_service.train.request import TrainingJobRequest

    fields = [field.name for field in attrs.fields(TrainingJobRequest)]
    assert list(body["schema"]["properties"]) == fields
    assert all(body["schema"]["properties"][name]["description"] for name in fields)
    assert body["examples"]["specification"]["value"] == EXAMPLE
    assert {"201", "400", "401", "500"} <= operation["responses"].keys()


def test_a_hyperparameter_that_the_trainer_does_not_have_is_told_before_the_run_id_is_spent(connect: Connect) -> None:
    schema = {"type": "object", "additionalProperties": False, "properties": {"learning_rate": {}, "model_id": {}}}
    client = connect(schema=schema)
    refused = client.post("/train", json={**REQUEST, "extra_args": {"learning_rat": 2e-5, "lr": 1.0, "max_steps": 5}})
    assert pointers(refused) == ["/extra_args/learning_rat", "/extra_args/lr"]
    assert "did you mean" in refused.json()["errors"][0]["hint"]
    assert client.post("/train", json={**REQUEST, "extra_args": {"learning_rate": 2e-5}}).status_code == 201
