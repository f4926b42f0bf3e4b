"""A job that is launched once more is asked about like a new one: by what the operator's file says now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from hostcore.errors import all_errors
from hostcore.plugins.installed import discover
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.policy import Principal
from hostcore_service.admission import Admission, Origin
from hostcore_service.settings import Settings
from hostcore_service.store.jobs import Jobs

ADA = Principal(name="ada")
Admit = Callable[..., Admission]

#: Allows what the jobs below name, and nothing of what the host puts into them.
NARROW: dict[str, Any] = {
    "plugins": ["tiny", "throughput", "allow-list", "jsonl", "hostcore-builtin-plugins/csv", "stuck", "local"],
    "images": ["registry.example/*"],
    "env": ["EXPERIMENT_*"],
    "secrets": ["env:HF_TOKEN"],
    "labels": ["team"],
    "annotations": ["note"],
}


@pytest.fixture
def admit(service_here: Callable[..., Settings], sqlite_engine: Engine, tmp_path: Path) -> Admit:
    """``admit(http={…})``: the way into one database, of a service with this operator's file."""
    (tmp_path / "data").mkdir()
    jobs = Jobs(sqlite_engine)
    return lambda **sections: Admission.of(service_here(**sections), jobs, discover())


def submit(admission: Admission, **keys: Any) -> Any:
    job = {"trainer": "tiny", "run_id": "r", "max_steps": 3, **keys}
    return admission.submit(job, Origin(principal=ADA, route="jobs"))[0]


def refused(admission: Admission, job: Any) -> list[str | None]:
    with pytest.raises(HostcoreError) as caught:
        admission.again(job, ADA)
    return [error.pointer for error in all_errors(caught.value)]


#: Jobs that ``NARROW`` lets in.
UNCHANGED: list[dict[str, Any]] = [
    {},
    {"reporters": []},
    {"reporters": ["jsonl"], "callbacks": [{"use": "throughput"}]},
    {"launcher": "stuck"},
    {"dataset": {"parquet_paths": ["DATA/x.parquet"]}, "validation": {"parquet_paths": "s3://b/k"}},
    {"dataset": {"source": "hostcore-builtin-plugins/csv", "paths": "s3://b/x.csv"}},
    {"checkpoint_base_uri": "s3://bucket/runs", "resume_from_checkpoint": "s3://bucket/runs/other"},
    {"checkpoint_base_uri": "RUNS"},
    {"weights": "file://DATA/w", "inputs": {"model": "s3://b/m", "more": {"uri": "DATA/m"}, "ref": "org/model"}},
    {"samples": [{"prompt": "a cat", "source_image": "DATA/x.png"}], "sample_every": 1},
    {"resources": {"image": "registry.example/a", "env": {"EXPERIMENT_NAME": "a"}, "num_nodes": 2}},
    {"hyperparams": {"token": {"$secret": "env:HF_TOKEN"}}},
    {"labels": {"team": "a"}, "annotations": {"note": "b", "hostcore/model-id": "c"}, "owner": "ada"},
    {"policies": [{"use": "allow-list", "trainers": ["tiny"]}], "profiles": {"short": {"max_steps": 1}}},
]


def test_a_job_that_nothing_has_changed_for_is_launched_once_more_as_it_is(admit: Admit, tmp_path: Path) -> None:
    admission = admit(http={**NARROW, "data_roots": [f"{tmp_path}/data"], "checkpoint_roots": [f"{tmp_path}/mirror"]})
    for number, keys in enumerate(UNCHANGED):
        job = submit(admission, run_id=f"r{number}", **_with_places(keys, tmp_path))
        assert admission.again(job, ADA) == job.job


def _with_places(value: Any, tmp_path: Path) -> Any:
    if isinstance(value, dict):
        return {key: _with_places(item, tmp_path) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_places(item, tmp_path) for item in value]
    if isinstance(value, str):
        return value.replace("DATA", f"{tmp_path}/data").replace("RUNS", f"{tmp_path}/mirror")
    return value


#: What the operator had opened, a job of that time, and where it is refused now.
CLOSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"images": ["old/*"]}, {"resources": {"image": "old/image"}}, "/resources/image"),
    ({"plugins": ["*"]}, {"callbacks": ["throughput"]}, "/callbacks/0"),
    ({"data_roots": ["/data"]}, {"weights": "/data/w"}, "/weights"),
    ({"checkpoint_roots": ["/runs"]}, {"checkpoint_base_uri": "/runs"}, "/checkpoint_base_uri"),
    ({"secrets": ["env:OLD"]}, {"hyperparams": {"token": {"$secret": "env:OLD"}}}, "/hyperparams/token"),
    ({"env": ["OLD"]}, {"resources": {"env": {"OLD": "1"}}}, "/resources/env/OLD"),
    ({"labels": ["*"]}, {"labels": {"old": "1"}}, "/labels/old"),
]


def test_what_the_operator_has_closed_since_is_not_launched_once_more(admit: Admit) -> None:
    now = admit(http={"plugins": ["tiny"], "labels": []})
    for number, (opened, keys, pointer) in enumerate(CLOSED):
        assert refused(now, submit(admit(http=opened), run_id=f"r{number}", **keys)) == [pointer]


def test_a_job_has_import_paths_if_the_operator_allows_them(admit: Admit) -> None:
    """Which settings name code is known to plugins alone, in the worker: there a job of a closed service is refused."""
    hyperparams = {"module": "lit_models:Auto"}
    closed, opened = submit(admit(), hyperparams=hyperparams), submit(admit(http={"import_paths": True}), run_id="s")
    assert (closed.job["import_paths"], opened.job["import_paths"]) == (False, True)
    assert admit().again(opened, ADA)["import_paths"] is False


def test_what_its_launcher_would_refuse_now_is_told_instead_of_launched(admit: Admit) -> None:
    launchers = {"torchrun": {"hosts": ["localhost", "b"]}}
    job = submit(admit(launchers=launchers), launcher="torchrun", resources={"num_nodes": 2})
    assert refused(admit(launchers={"torchrun": {"hosts": ["localhost"]}}), job) == ["/resources/num_nodes"]
