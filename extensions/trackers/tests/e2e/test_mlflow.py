"""The reporter mlflow, the uploader mlflow-artifacts, and the real server of MLflow: database, API, artifact store."""

import math
import random
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from hostcore_hookspecs import Event, FatalError, Job, TransientError, UploadContext
from hostcore_hookspecs.events import (
    CheckpointSaved,
    Metrics,
    RunCancelled,
    RunError,
    RunFailed,
    RunPreempted,
    RunResumed,
    RunStarted,
    RunSubmitted,
    RunSucceeded,
    Validation,
)
from hostcore_trackers.mlflow import MlflowReporter
from hostcore_trackers.mlflow_artifacts import MlflowArtifactsUploader

Course = Any
MakeCourse = Callable[..., Course]


def reporter_of(server: str, experiment: str, **settings: Any) -> MlflowReporter:
    # On two busy cores, a server that has just started takes its time; here is no host that would try again.
    settings = {"tracking_uri": server, "experiment": experiment, "timeout_seconds": 120.0, **settings}
    return MlflowReporter(settings=MlflowReporter.Settings(**settings))


def runs(server: str, experiment: str) -> list[Run]:
    client = MlflowClient(server)
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id])) if found else []


def begin(run: Course) -> list[Event]:
    return [run.tell(RunSubmitted(trainer="flights", max_steps=100)), run.tell(RunStarted(device="cpu"), step=0)]


def steps(run: Course, *steps: int) -> list[Event]:
    return [run.tell(Metrics(metrics={"train/loss": float(step)}, samples_per_second=9.0), step=step) for step in steps]


def history(server: str, run: Run, key: str = "train/loss") -> list[tuple[int, float]]:
    return sorted((point.step, point.value) for point in MlflowClient(server).get_metric_history(run.info.run_id, key))


def test_a_run_becomes_a_run_of_mlflow(course: MakeCourse, mlflow_server: str) -> None:
    run = course()
    told = [*begin(run), *steps(run, 10, 20), run.tell(Validation(metrics={"val/loss": 0.5}, weight=10), step=20)]
    told.append(run.tell(Metrics(metrics={"train/loss": None}, nonfinite=("train/loss",)), step=30))
    checkpoint = CheckpointSaved(path="checkpoints/step-000030", bytes=9, final=True, best={"val/loss": 0.5})
    told += [run.tell(checkpoint, step=30), run.tell(RunSucceeded(), step=30)]
    run.report(reporter_of(mlflow_server, "first"), told)
    (found,) = runs(mlflow_server, "first")
    assert found.info.run_name == "flights-1"
    assert found.info.status == "FINISHED"
    assert (found.info.start_time, found.info.end_time) == (1_700_000_000_000, told[-1].time_ms)
    assert found.data.params["hyperparams.lr"] == "0.1"
    assert found.data.params["hyperparams.sizes"] == "[64, 8]"
    assert found.data.metrics["val/loss"] == 0.5
    assert found.data.metrics["host/samples_per_second"] == 9
    assert history(mlflow_server, found)[:2] == [(10, 10), (20, 20)]
    assert math.isnan(history(mlflow_server, found)[2][1])
    assert found.data.tags["hostcore.run_id"] == "flights-1"
    assert found.data.tags["hostcore.checkpoint"] == "checkpoints/step-000030"
    assert found.data.tags["hostcore.best.val/loss"] == "0.5"


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (RunFailed(error=RunError(type="ValueError", message="no")), "FAILED"),
        (RunCancelled(reason="enough"), "KILLED"),
        (RunPreempted(), "KILLED"),
    ],
    ids=["failed", "cancelled", "preempted"],
)
def test_every_end_has_its_status_and_a_resumed_run_goes_on(
    end: Any, status: str, course: MakeCourse, mlflow_server: str
) -> None:
    run = course()
    experiment = f"resumed after {status} {type(end).__name__}"
    told = [*begin(run), *steps(run, 10), run.tell(end, step=10)]
    run.report(reporter_of(mlflow_server, experiment), told)
    (found,) = runs(mlflow_server, experiment)
    assert found.info.status == status
    run.attempt = 2
    more = [*begin(run), run.tell(RunResumed(path="checkpoints/step-000010"), step=10), *steps(run, 20)]
    run.report(reporter_of(mlflow_server, experiment), [told[-1], *more])
    (found,) = runs(mlflow_server, experiment)
    assert found.info.status == "RUNNING"
    assert found.data.tags["hostcore.attempt"] == "2"
    run.report(reporter_of(mlflow_server, experiment), [run.tell(RunSucceeded(), step=20)])
    (found,) = runs(mlflow_server, experiment)
    assert found.info.status == "FINISHED"
    assert history(mlflow_server, found) == [(10, 10), (20, 20)]


def test_a_new_run_of_the_same_name_is_another_run(course: MakeCourse, mlflow_server: str) -> None:
    old, new = course("old"), course("new", submitted_ms=1_700_000_100_000)
    for run in (old, new):
        run.report(reporter_of(mlflow_server, "same name"), [*begin(run), *steps(run, 10)])
    assert len(runs(mlflow_server, "same name")) == 2


def test_a_parameter_that_a_resumed_job_changes_keeps_its_first_value(course: MakeCourse, mlflow_server: str) -> None:
    run = course(job=Job(trainer="flights", max_steps=100))
    run.report(reporter_of(mlflow_server, "changed"), begin(run))
    run.attempt, run.job = 2, Job(trainer="flights", max_steps=200, hyperparams={"lr": 0.1})
    run.report(reporter_of(mlflow_server, "changed"), begin(run))
    (found,) = runs(mlflow_server, "changed")
    assert found.data.params["max_steps"] == "100"
    assert found.data.params["hyperparams.lr"] == "0.1"


def test_a_job_beyond_the_limits_of_the_server_is_cut(course: MakeCourse, mlflow_server: str) -> None:
    hyperparams = {f"p{index}": index for index in range(250)} | {"long": "x" * 10_000, "k" * 400: 1, "odd (name)": 2}
    run = course(job=Job(trainer="flights", hyperparams=hyperparams, labels={"team": "y" * 9000}))
    metrics: dict[str, float | None] = {f"m{index}": 1.0 for index in range(1500)} | {"p@1 (%)": 2.0, "n" * 400: 3.0}
    error = RunError(type="ValueError", message="z" * 20_000)
    told = [*begin(run), run.tell(Metrics(metrics=metrics), step=1), run.tell(RunFailed(error=error), step=1)]
    run.report(reporter_of(mlflow_server, "limits"), told)
    (found,) = runs(mlflow_server, "limits")
    assert found.data.params["hyperparams.p249"] == "249"
    assert len(found.data.params["hyperparams.long"]) == 6000
    (odd,) = [name for name in found.data.params if name.startswith("hyperparams.odd _name_-")]
    assert found.data.params[odd] == "2"
    assert found.data.metrics["m1499"] == 1
    assert [value for name, value in found.data.metrics.items() if name.startswith("p_1 ___-")] == [2]
    assert [value for name, value in found.data.metrics.items() if name.startswith("n" * 200)] == [3]


def test_metrics_and_parameters_whose_names_mlflow_refuses_are_curves_of_their_own(
    course: MakeCourse, mlflow_server: str
) -> None:
    names = ["acc/C", "acc/C+", "acc/C#", "准确", "召回", "rappel/été", "acc/", "a//b", "acc/..", "/acc", ""]
    run = course(job=Job(trainer="flights", hyperparams={"weights": {"C": 1.0, "C+": 2.0, "C#": 3.0}}))
    metrics = {name: float(number) for number, name in enumerate(names)}
    for step in (1, 2):  # two attempts
        told = [*begin(run), run.tell(Metrics(metrics=metrics), step=step), run.tell(RunPreempted(), step=step)]
        run.report(reporter_of(mlflow_server, "names"), told)
        run.attempt += 1
    (found,) = runs(mlflow_server, "names")
    curves = {name: value for name, value in found.data.metrics.items() if not name.startswith("host/")}
    assert sorted(curves.values()) == sorted(metrics.values())
    assert curves["准确"] == 3
    for name, value in curves.items():
        assert history(mlflow_server, found, name) == [(1, value), (2, value)]
    weights = [value for name, value in found.data.params.items() if name.startswith("hyperparams.weights.")]
    assert sorted(weights) == ["1.0", "2.0", "3.0"]


def test_an_experiment_that_is_not_there_is_fatal_where_it_must_not_be_made(
    course: MakeCourse, mlflow_server: str
) -> None:
    run = course()
    with pytest.raises(FatalError, match="has no experiment 'unknown'"):
        run.report(reporter_of(mlflow_server, "unknown", create_experiment=False), begin(run))


def test_a_run_that_is_deleted_while_it_goes_on_is_fatal(course: MakeCourse, mlflow_server: str) -> None:
    run = course()
    reporter = reporter_of(mlflow_server, "deleted run")
    reporter.open(run.ctx())
    for event in [*begin(run), *steps(run, 10)]:
        reporter.report_event(event)
    (found,) = runs(mlflow_server, "deleted run")
    MlflowClient(mlflow_server).delete_run(found.info.run_id)
    with pytest.raises(FatalError, match=r"answered 400 .*must be in the 'active' state"):
        reporter.report_event(run.tell(Metrics(metrics={"train/loss": 1.0}), step=20))
    reporter.close()


def test_an_experiment_that_was_deleted_is_fatal(course: MakeCourse, mlflow_server: str) -> None:
    run = course()
    client = MlflowClient(mlflow_server)
    client.delete_experiment(client.create_experiment("deleted"))
    with pytest.raises(FatalError, match="'deleted' was deleted"):
        run.report(reporter_of(mlflow_server, "deleted"), begin(run))


def test_an_address_without_mlflow_is_fatal(course: MakeCourse, mlflow_server: str) -> None:
    run = course()
    with pytest.raises(FatalError, match="answered 404"):
        run.report(reporter_of(f"{mlflow_server}/elsewhere", "x", create_experiment=False), begin(run))


# The uploader.

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


def test_an_experiment_that_was_deleted_takes_no_artifacts(server: str, opened: Any, artifact: Any) -> None:
    client = MlflowClient(server)
    name = uuid.uuid4().hex
    client.delete_experiment(client.create_experiment(name))
    with pytest.raises(FatalError, match="deleted"):
        opened(experiment=name).upload_artifact(artifact("a.bin", b"x"))
