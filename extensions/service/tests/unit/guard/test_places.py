"""What a job from others may name, and what is said when it may not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore.supervisor.operator_file import HttpSettings
from hostcore_service.guard.places import wrong_places

OPENED = ("minio:9000", "*.corp.example", "127.0.0.1:8080", "[fd00::1]:80")


@pytest.fixture
def http(tmp_path: Path) -> HttpSettings:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    return HttpSettings(data_roots=(tmp_path / "data",), hosts=OPENED)


def refused(job: Mapping[str, Any], http: HttpSettings, names: Mapping[str, Sequence[str]] = {}) -> list[str | None]:
    return [
        one.pointer
        for one in wrong_places(job, http, look_up=lambda asked: {name: names.get(name, []) for name in asked})
    ]


@pytest.mark.parametrize(
    "uri",
    [
        *("s3://bucket/a/b.parquet", "s3a://b/k", "gs://b/*.parquet", "az://c/x", "hf://datasets/u/r@rev/x.parquet"),
        *("abfs://container@account.dfs.core.windows.net/x", "s3://bucket/my data/x", "s3://b/k?versionId=3"),
        "s3://arn:aws:s3:us-west-2:123456789012:accesspoint/ap/x",
        *(
            "https://data.corp.example/x.csv",
            "http://data.corp.example:8080/x?a=b#c",
        ),
        *("http://minio:9000/x", "http://a.corp.example/x", "http://127.0.0.1:8080/x", "http://[fd00::1]/x"),
    ],
)
def test_stores_and_opened_hosts_may_be_named(uri: str, http: HttpSettings) -> None:
    assert refused({"dataset": {"parquet_paths": [uri]}}, http) == []


@pytest.mark.parametrize("path", ["", "/sub", "/sub/*.parquet", "/not-there-yet"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_lies_in_a_data_root_may_be_named(scheme: str, path: str, http: HttpSettings) -> None:
    assert refused({"weights": f"{scheme}{http.data_roots[0]}{path}"}, http) == []


@pytest.mark.parametrize(
    "value",
    [
        *("bert-base-uncased", "meta-llama/Llama-3", "torch::nn", "cuda:0", "16:9", "1.2.3", ".", "a.b.c", "0:100"),
        *("See https://example.com, or (https://a.org).", "100% sure: a/b", "résumé of the year", "a = b, c; d"),
    ],
)
def test_what_is_no_place_may_be_said(value: str, http: HttpSettings) -> None:
    assert refused({"hyperparams": {"text": value}}, http) == []


@pytest.mark.parametrize("key", ["labels", "annotations", "owner", "mock_batches", "release_ref"])
def test_text_for_people_may_look_like_a_place(key: str, http: HttpSettings) -> None:
    assert refused({key: {"a": ["/etc/passwd", "http://127.0.0.1"]}}, http) == []
    assert refused({"samples": [{"prompt": "/imagine file:///x"}]}, http) == []


@pytest.mark.parametrize(
    ("job", "pointer"),
    [
        ({"dataset": {"parquet_paths": ["s3://a/b", "data/x.parquet"]}}, "/dataset/parquet_paths/1"),
        ({"validation": {"source": "csv", "paths": "x.csv"}}, "/validation/paths"),
        ({"test": {"source": "shards", "index": "index.json"}}, "/test/index"),
        ({"weights": "w.safetensors"}, "/weights"),
        ({"checkpoint_base_uri": "runs"}, "/checkpoint_base_uri"),
        ({"resume_from_checkpoint": "runs/a/checkpoints/step-1"}, "/resume_from_checkpoint"),
        ({"inputs": {"a/b": {"uri": "model"}}}, "/inputs/a~1b/uri"),
        ({"inputs": {"model": "./model"}}, "/inputs/model"),
        ({"samples": [{"source_image": "x.png"}]}, "/samples/0/source_image"),
        ({"uploaders": [{"use": "fsspec", "uri": "out"}]}, "/uploaders/0/uri"),
    ],
)
def test_a_relative_path_starts_nowhere(job: Mapping[str, Any], pointer: str, http: HttpSettings) -> None:
    assert refused(job, http) == [pointer]


@pytest.mark.parametrize(
    "settings",
    [
        {"storage_options": {"client_kwargs": {"endpoint_url": "http://169.254.169.254"}}},
        {"storage_options": {"host": "10.0.0.1"}},
        {"storage_options": {"endpoint": "minio:9001"}},
        {"storage_options": {"proxies": ["vault"]}},
        {"storage_options": {"connection_string": "BlobEndpoint=http://127.0.0.1:10000/x;AccountName=a"}},
        {"storage_options": {"key_file": "/etc/ssh/id"}},
    ],
)
def test_the_options_of_stores_lead_nowhere_else(settings: Mapping[str, Any], http: HttpSettings) -> None:
    assert len(refused({"dataset": {"parquet_paths": "s3://b/k", **settings}}, http)) == 1


def test_a_name_counts_for_what_it_leads_to(http: HttpSettings) -> None:
    names = {
        "inside.example.com": ["93.184.216.34", "10.1.2.3"],
        "a.corp.example": ["10.1.2.3"],
        "ok.example": ["8.8.8.8"],
    }
    job = {"dataset": {"parquet_paths": [f"https://{name}/x" for name in (*names, "unknown.example")]}}
    assert set(refused(job, http, names)) == {f"/dataset/parquet_paths/{number}" for number in (0, 2, 3)}
    settings = {"reporters": [{"use": "redis-streams", "host": name} for name in (*names, "unknown.example")]}
    assert refused(settings, http, names) == ["/reporters/0/host"]


def test_a_server_that_nobody_has_opened_may_send_whoever_asks_it_anywhere(http: HttpSettings) -> None:
    job = {"dataset": {"parquet_paths": ["https://example.com/x", "http://8.8.8.8/x", "https://data.corp.example/x"]}}
    assert refused(job, http) == ["/dataset/parquet_paths/0", "/dataset/parquet_paths/1"]


def test_an_opened_name_never_leads_to_a_metadata_service() -> None:
    http = HttpSettings(hosts=("*",))
    job = {"dataset": {"parquet_paths": ["http://link.example/x", "http://169.254.169.254/x", "http://metadata/x"]}}
    assert len(refused(job, http, {"link.example": ["169.254.169.254"]})) == 3


def test_credentials_in_a_uri_are_refused_and_not_repeated(http: HttpSettings) -> None:
    (error,) = wrong_places({"reporters": [{"use": "redis-streams", "url": "redis://me:hunter2@example.com/0"}]}, http)
    assert "credentials" in error.message
    assert "hunter2" not in error.message
    assert error.hint is not None
    assert "$secret" in error.hint


def test_a_job_cannot_make_the_service_ask_for_names_without_end(http: HttpSettings) -> None:
    job = {"dataset": {"parquet_paths": [f"https://h{number}.example/x" for number in range(65)]}}
    asked: list[str] = []
    everywhere = attrs.evolve(http, hosts=("*",))
    (error,) = wrong_places(job, everywhere, look_up=lambda names: asked.extend(names) or {})  # type: ignore[func-returns-value]
    assert "65 hosts" in error.message
    assert asked == []


def test_references_to_secrets_are_no_places(http: HttpSettings) -> None:
    assert refused({"reporters": [{"use": "x", "token": {"$secret": "file:/run/secrets/token"}}]}, http) == []


def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "deep" / "deeper").mkdir(parents=True)
    outside.mkdir()
    (root / "fine").symlink_to(root / "deep")
    http = HttpSettings(data_roots=(root,), checkpoint_roots=(root,))
    assert refused({"weights": str(root)}, http) == []
    (root / "deep" / "deeper" / "out").symlink_to(outside)
    for path in (root, root / "deep", root / "fine", f"{root}/*/x", root / "deep" / "deeper" / "out"):
        assert refused({"weights": str(path)}, http) == ["/weights"], path
    assert refused({"checkpoint_base_uri": str(root), "run_id": "new"}, http) == []
    assert refused({"checkpoint_base_uri": str(root), "run_id": "deep"}, http) == ["/checkpoint_base_uri"]


WRITING: list[Callable[[str], Mapping[str, Any]]] = [
    lambda place: {"checkpoint_base_uri": place, "run_id": "r"},
    lambda place: {"uploaders": [{"use": "fsspec", "uri": place}]},
    lambda place: {"uploaders": ["http", {"use": "x", "deep": {"folder": [place]}}]},
    lambda place: {"reporters": [{"use": "tensorboard", "path": place}]},
    lambda place: {"callbacks": [{"use": "x", "path": place}]},
]


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("job", WRITING)
def test_nothing_is_written_where_the_operator_has_opened_data_only(
    job: Callable[[str], Mapping[str, Any]], scheme: str, tmp_path: Path
) -> None:
    for folder in ("data", "runs", "runs/inside"):
        (tmp_path / folder).mkdir()
    (tmp_path / "runs" / "out").symlink_to(tmp_path / "data")
    http = HttpSettings(data_roots=(tmp_path / "data",), checkpoint_roots=(tmp_path / "runs",))
    for place in ("data", "data/digits", "runs/out", "runs/out/digits"):
        (error,) = wrong_places(job(f"{scheme}{tmp_path}/{place}"), http)
        assert "does not lie in one of the folders that jobs may write to" in error.message
        assert error.hint is not None
        assert "checkpoint_roots" in error.hint
    assert refused(job(f"{scheme}{tmp_path}/runs/inside"), http) == []


def test_what_was_written_may_be_read(tmp_path: Path) -> None:
    http = HttpSettings(checkpoint_roots=(tmp_path,))
    job = {"weights": f"{tmp_path}/w", "resume_from_checkpoint": f"file://{tmp_path}/r/checkpoints/step-000001"}
    assert refused({**job, "dataset": {"parquet_paths": f"{tmp_path}/*.parquet"}}, http) == []
    (error,) = wrong_places({"weights": "/elsewhere"}, http)
    assert error.hint is not None
    assert "data_roots" in error.hint


def test_the_certificate_of_a_server_is_read(tmp_path: Path) -> None:
    job = {"reporters": [{"use": "webhook", "ca_file": f"{tmp_path}/ca.pem"}]}
    assert refused(job, HttpSettings(data_roots=(tmp_path,))) == []


def test_a_mirror_is_not_written_through_a_link_into_the_data(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "linked").symlink_to(tmp_path / "data")
    http = HttpSettings(data_roots=(tmp_path / "data",), checkpoint_roots=(tmp_path / "runs",))
    job = {"checkpoint_base_uri": f"{tmp_path}/runs"}
    assert refused({**job, "run_id": "linked"}, http) == ["/checkpoint_base_uri"]
    assert refused({**job, "run_id": "new"}, http) == []


def test_a_link_to_itself_is_no_way_out(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert refused({"weights": str(tmp_path)}, HttpSettings(data_roots=(tmp_path,))) == []


def test_a_data_root_may_be_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    assert refused({"weights": str(tmp_path / "root" / "w")}, HttpSettings(data_roots=(tmp_path / "root",))) == []


def test_a_data_root_with_brackets_is_no_pattern(tmp_path: Path) -> None:
    (tmp_path / "data[1]" / "deep").mkdir(parents=True)
    (tmp_path / "data1").mkdir()
    http = HttpSettings(data_roots=(tmp_path / "data[1]",))
    for path in ("data[1]", "data[1]/deep", "data[1]/*.parquet", "data[1]/*/x.parquet"):
        assert refused({"dataset": {"parquet_paths": f"{tmp_path}/{path}"}}, http) == []
    for path in ("data1", "data[12]/*", "data?/*"):
        assert refused({"dataset": {"parquet_paths": f"{tmp_path}/{path}"}}, http) == ["/dataset/parquet_paths"]


def test_a_word_of_a_megabyte_is_looked_through_once(http: HttpSettings) -> None:
    assert refused({"hyperparams": {"word": "a" * 2**20}}, http) == []
    assert refused({"hyperparams": {"word": "a" * 2**20 + "://x"}}, http) == ["/hyperparams/word"]
