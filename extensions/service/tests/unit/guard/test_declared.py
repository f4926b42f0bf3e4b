"""A setting may hold a place if its plugin declares it as a path or URI, in every plugin of this repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hostcore.plugins.describe import describe
from hostcore.plugins.installed import discover
from hostcore.plugins.resolve import resolve
from hostcore_service.descriptions import Descriptions
from hostcore_service.guard.declared import undeclared_places

PLACE = "s3://bucket/key"
STREAM = {"use": "redis-streams", "url": "redis://redis.example/0", "ca_file": "/data/ca.pem"}
INIT = {"init": {"files": [{"train": PLACE}]}, "use": "my_callbacks:Ema"}
#: Jobs with a place in each setting that is declared for it.
DECLARED: list[dict[str, Any]] = [
    {"reporters": [{"use": "webhook", "url": "https://a.example/x", "headers": {"Referer": "https://a.example"}}]},
    {"reporters": [{"use": "webhook", "terminal_url": "https://a.example/x", "ca_file": "/data/ca.pem"}, STREAM]},
    {
        "reporters": [
            {"use": "wandb", "base_url": "https://a.example", "dir": "/runs/w"},
            {"use": "trackio", "dir": "/t"},
        ]
    },
    {"reporters": [{"use": "mlflow", "tracking_uri": "https://a.example"}, {"use": "tensorboard", "path": "/runs/t"}]},
    {"reporters": [{"use": "jsonl", "path": "/runs/x", "config_path": "/data/c"}, {"use": "job-index", "path": "/i"}]},
    {"uploaders": [{"use": "mlflow-artifacts", "tracking_uri": "https://a.example"}, {"use": "fsspec", "uri": PLACE}]},
    {"uploaders": [{"use": "fsspec", "storage_options": {"client_kwargs": {"endpoint_url": "http://minio:9000"}}}]},
    {"uploaders": [{"use": "http", "url": "https://a.example/{run_id}/{path}", "headers": {"a": "https://a.example"}}]},
    {"uploaders": [{"use": "http", "checkpoint_url": "https://a.example", "sample_url": "https://a.example"}]},
    {"policies": [{"use": "allow-list", "data_uris": ["s3://training/*"], "checkpoint_uris": ["/mirrors/*"]}]},
    {"dataset": {"parquet_paths": [PLACE], "storage_options": {"endpoint_url": "http://minio:9000"}}},
    *({"validation": {"source": source, "paths": PLACE}} for source in ("csv", "json", "arrow")),
    {"test": {"source": "shards", "index": PLACE}},
    {"dataset": {"of": [{"parquet_paths": PLACE}, {"source": "lance", "path": "/data/table"}]}},
    {"dataset": {"source": "delta", "uri": PLACE}, "test": {"source": "lance", "path": "/data/table"}},
    {"dataset": {"source": "duckdb", "tables": {"a": "/data/a.parquet"}}, "test": {"source": "datasets", "path": "/d"}},
    {
        "trainer": "process",
        "hyperparams": {"command": ["/opt/bin/train", "/data"], "cwd": "/data", "env": {"A": PLACE}},
    },
    {"trainer": "process", "hyperparams": {"settings": {"deep": [{"data": PLACE}]}}},
    {"trainer": "lightning", "hyperparams": {"init": {"data": PLACE}, "datamodule_init": {"data": PLACE}}},
    {"trainer": "lightning", "hyperparams": {"callbacks": [INIT]}},
    {"trainer": "nemo", "hyperparams": {"config_path": "/data/gpt.yaml", "cfg": {"data": {"path": PLACE}}}},
    {"trainer": "transformers", "hyperparams": {"model": "/models/llama", "tokenizer": "/models/llama"}},
    *({"trainer": one, "hyperparams": {"model_id": "/m", "tokenizer_name": "/m"}} for one in ("hf", "meta")),
    # Keys of the job, and fields of the unified API, whatever the trainer takes.
    {"weights": PLACE, "inputs": {"model": PLACE}, "trainer": "digits", "hyperparams": {"config_path": PLACE}},
]
#: Jobs with a place where nobody has declared one, and the pointers of these.
UNDECLARED: list[tuple[dict[str, Any], list[str]]] = [
    ({"reporters": [{"use": "wandb", "tags": ["a", PLACE], "project": PLACE}]}, ["0/tags/1", "0/project"]),
    ({"reporters": ["terminal", {"use": "webhook", "events": [PLACE], "unknown": PLACE}]}, ["1/events/0", "1/unknown"]),
    ({"dataset": {"source": "csv", "types": {"a": PLACE}, "paths": PLACE}}, ["types/a"]),
    ({"dataset": {"source": "duckdb", "sql": PLACE}}, ["sql"]),
    (
        {"dataset": {"source": "mix", "of": [{"path": PLACE}, {"source": "duckdb", "sql": PLACE}]}},
        ["of/0/path", "of/1/sql"],
    ),
    ({"dataset": {"parquet_paths": PLACE, "deep": {"a": [PLACE]}}}, ["deep/a/0"]),
    ({"trainer": "digits", "hyperparams": {"learning_rate": PLACE, "data": PLACE}}, ["learning_rate", "data"]),
    ({"trainer": "transformers", "hyperparams": {"config": {"a": PLACE}, "model": "/m"}}, ["config/a"]),
    # A plugin without a class of settings, one that is not installed here, and none at all.
    ({"callbacks": [{"use": "oom-hint", "path": "/data"}]}, ["0/path"]),
    (
        {"trainer": "of-the-environment", "hyperparams": {"a": PLACE}, "callbacks": [{"use": 7, "a": PLACE}]},
        ["a", "0/a"],
    ),
    ({"hyperparams": {"a~/b": {"": PLACE}}}, ["a~0~1b/"]),
    ({"reporters": [{"use": "wandb", "tags": {"\u00b2": PLACE}}]}, ["0/tags/\u00b2"]),
]


def test_a_setting_that_nobody_declared_as_a_place_is_refused_when_it_looks_like_one(tmp_path: Path) -> None:
    discovered = discover()
    # All of them by one process: some import a framework.
    found = {(one.ref.kind, one.ref.name): one for one in describe(discovered.refs, job_dir=tmp_path)}
    known = Descriptions(tmp_path, lambda kind, name, _: found[kind, resolve(name, kind, discovered).name])
    for job in DECLARED:
        assert list(undeclared_places(job, known.schema)) == [], job
    for job, pointers in UNDECLARED:
        errors = list(undeclared_places(job, known.schema))
        assert [str(one.pointer).split("/", 2)[2] for one in errors] == pointers
        assert all("looks like a place" in one.message for one in errors)
        assert all("from hostcore_hookspecs import Uri" in str(one.hint) for one in errors)
