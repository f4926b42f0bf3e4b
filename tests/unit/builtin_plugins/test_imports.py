"""Modules of the built-in plugins load neither the host nor what they need later."""

import json
import subprocess
import sys
from importlib.metadata import distribution
from importlib.resources import files

import pytest


def modules(folder: str = "") -> list[str]:
    package = f"hostcore_builtin_plugins{folder}"
    names = (file.name for file in files(package).iterdir())
    return sorted(f"{package}.{name.removesuffix('.py')}" for name in names if name.endswith(".py"))


UPLOADERS = """
from hostcore_builtin_plugins.uploaders import fsspec, http
from hostcore_trackers import mlflow_artifacts
fsspec.FsspecUploader(settings=fsspec.FsspecUploader.Settings(uri="s3://bucket/runs"))
http.HttpUploader(settings=http.HttpUploader.Settings(url="https://store.example/{path}"))
mlflow_artifacts.MlflowArtifactsUploader(
    settings=mlflow_artifacts.MlflowArtifactsUploader.Settings(tracking_uri="http://localhost:5000")
)
"""
CLIENTS = {"fsspec", "s3fs", "gcsfs", "adlfs", "boto3", "mlflow", "urllib3", "aiohttp", "requests"}


@pytest.mark.parametrize(
    ("program", "kept_out"),
    [
        (f"import {', '.join(modules())}", set()),
        *((f"import hostcore_builtin_plugins.{one}", {"rich", "fsspec"}) for one in ("terminal", "jsonl", "local")),
        (f"import {', '.join(modules('.callbacks'))}", {"numpy", "rich", "matplotlib"}),
        (UPLOADERS, {"rich", *CLIENTS}),
    ],
    ids=["all", "terminal", "jsonl", "local", "callbacks", "uploaders"],
)
def test_no_module_loads_the_host_or_a_library_before_it_is_used(program: str, kept_out: set[str]) -> None:
    program += "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
    packages = {name.partition(".")[0] for name in json.loads(imported)}
    assert not packages & {"hostcore", "torch", *kept_out, *({"pyarrow"} if kept_out else set())}


def test_every_entry_point_leads_to_a_class() -> None:
    declared = distribution("hostcore-builtin-plugins").entry_points
    found: dict[str, set[str]] = {}
    for entry_point in declared:
        found.setdefault(entry_point.group.removeprefix("hostcore."), set()).add(entry_point.name)
    assert found == {
        "data_sources": {"parquet", "arrow", "csv", "json", "shards", "mix", "mock"},
        "callbacks": {
            *("best-checkpoint", "csv-metrics", "early-stopping", "grad-clip", "lr-monitor"),
            *("nonfinite-guard", "oom-hint", "profiler", "throughput"),
        },
        "reporters": {"terminal", "job-index", "jsonl"},
        "trainers": {"process"},
        "runs_code": {"process"},
        "uploaders": {"fsspec", "http"},
        "launchers": {"local"},
        "policies": {"allow-list"},
    }
    assert all(isinstance(entry_point.load(), type) for entry_point in declared)
