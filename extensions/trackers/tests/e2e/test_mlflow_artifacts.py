"""The uploader ``mlflow-artifacts`` and a real MLflow server: its database, its API, its artifact store."""

import random
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from hostcore_hookspecs import FatalError, Job, TransientError, UploadContext
from hostcore_trackers.mlflow_artifacts import MlflowArtifactsUploader

NAMES = [
    "checkpoints/step-000200/trainer/a+b c.bin",
    "samples/größe-日本語.txt",
    "logs/100%/a & b=1.log",
    "result.json",
]


@pytest.fixture(scope="module", params=["served", "direct"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that keeps the artifacts itself, or one that leaves them to its clients."""
    if request.param == "served":
        yield request.getfixturevalue("mlflow_server")
        return
    start = request.getfixturevalue("start_mlflow")
    with start("--no-serve-artifacts", artifacts="--default-artifact-root") as url:
        yield url


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / f"run-{uuid.uuid4().hex}"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "events.jsonl").write_text('{"seq": 1, "time_ms": 1700000000123, "event": "run_submitted"}\n')
    return folder


@pytest.fixture
def opened(server: str, run_dir: Path) -> Iterator[Callable[..., MlflowArtifactsUploader]]:
    uploaders = []

    def make(*, is_canceled: Callable[[], bool] = lambda: False, **settings: Any) -> MlflowArtifactsUploader:
        uploader = MlflowArtifactsUploader(
            settings=MlflowArtifactsUploader.Settings(**{"tracking_uri": server, **settings})
        )
        job = Job(run_id=run_dir.name, trainer="tiny")
        ctx = UploadContext(run_id=run_dir.name, run_dir=str(run_dir), base_uri=None, job=job, is_canceled=is_canceled)
        uploader.open(ctx)
        uploaders.append(uploader)
        return uploader

    yield make
    for uploader in uploaders:
        uploader.close()


@pytest.fixture
def mlflow_runs(server: str, run_dir: Path) -> Callable[[], list[Any]]:
    """What MLflow itself finds of the run."""

    def find() -> list[Any]:
        client = MlflowClient(server)
        experiment = client.get_experiment_by_name("tiny")
        where = f"tags.`hostcore.run_id` = '{run_dir.name}'"
        return list(client.search_runs([experiment.experiment_id], filter_string=where)) if experiment else []

    return find


def downloaded(server: str, run: Any, name: str, folder: Path) -> bytes:
    target = folder / "downloaded" / uuid.uuid4().hex
    target.mkdir(parents=True)
    return Path(MlflowClient(server).download_artifacts(run.info.run_id, name, str(target))).read_bytes()


def test_names_and_bytes_arrive_exactly_in_the_one_run_with_the_tag(
    server: str, opened: Any, artifact: Any, mlflow_runs: Any, tmp_path: Path
) -> None:
    contents = {name: random.Random(name).randbytes(3000) for name in NAMES} | {"empty.log": b""}
    artifacts = [artifact(name, content) for name, content in contents.items()]
    uploader = opened()
    with ThreadPoolExecutor(4) as threads:
        receipts = list(threads.map(uploader.upload_artifact, artifacts))
    assert [(receipt.size, receipt.sha256, receipt.existed) for receipt in receipts] == [
        (one.size, one.sha256, False) for one in artifacts
    ]
    (run,) = mlflow_runs()
    assert {name: downloaded(server, run, name, tmp_path) for name in contents} == contents


@pytest.mark.parametrize("verify", [True, False])
def test_another_attempt_finds_what_is_there_and_replaces_what_differs(
    server: str, opened: Any, artifact: Any, mlflow_runs: Any, tmp_path: Path, verify: bool
) -> None:
    contents = (b"old", b"old", b"new", b"longer")
    receipts = [opened(verify=verify).upload_artifact(artifact("a/b.bin", content)) for content in contents]
    assert [receipt.existed for receipt in receipts] == [False, True, False, False]
    (run,) = mlflow_runs()
    assert downloaded(server, run, "a/b.bin", tmp_path) == b"longer"


def test_a_name_that_the_server_would_change_is_told_at_once(server: str, opened: Any, artifact: Any) -> None:
    uploader = opened()
    for name in ("logs/#1.log", "logs/%41.log"):
        one = artifact(name, b"x")
        if uploader.upload_artifact(artifact("a.bin", b"x")).uri.startswith("file:"):
            assert uploader.upload_artifact(one).sha256 == one.sha256  # a folder takes any name
        else:
            with pytest.raises(FatalError, match="MLflow takes no file name with #"):
                uploader.upload_artifact(one)


def test_a_run_that_has_no_event_yet_is_tried_again_soon(opened: Any, artifact: Any, run_dir: Path) -> None:
    (run_dir / "logs" / "events.jsonl").write_text("")
    with pytest.raises(TransientError, match="no event yet"):
        opened().upload_artifact(artifact("a.bin", b"x"))


def test_a_server_that_is_not_there_is_tried_again_later(opened: Any, artifact: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nowhere = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(TransientError):
        opened(tracking_uri=nowhere, timeout_seconds=2.0).upload_artifact(artifact("a.bin", b"x"))


def test_an_experiment_that_was_deleted_is_fatal(server: str, opened: Any, artifact: Any) -> None:
    client = MlflowClient(server)
    name = uuid.uuid4().hex
    client.delete_experiment(client.create_experiment(name))
    with pytest.raises(FatalError, match="deleted"):
        opened(experiment=name).upload_artifact(artifact("a.bin", b"x"))
