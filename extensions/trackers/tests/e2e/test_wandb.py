"""The reporter wandb with the real library: offline, and with a stand-in for the server."""

import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import psutil
import pytest

from hostcore_hookspecs import Event, FatalError, Job, Secret, TransientError
from hostcore_hookspecs.events import (
    CheckpointSaved,
    Metrics,
    RunError,
    RunFailed,
    RunPreempted,
    RunResumed,
    RunStarted,
    RunSubmitted,
    RunSucceeded,
    Validation,
)
from hostcore_trackers.wandb.reporter import WandbReporter
from hostcore_trackers.wandb.session import RunFile, rows_of

Course = Any
MakeCourse = Callable[..., Course]
Server = Any

JOB = Job(
    trainer="flights/delays",
    hyperparams={"lr": 0.1, "sizes": [64, 8], "token": {"$secret": "env:T"}},
    max_steps=30,
    labels={"team": "a"},
)
ID = "flights-1-18bcfe56800"
KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where wandb leaves temporary files, of which there are none in the end, however wandb has ended."""
    with tempfile.TemporaryDirectory(prefix="test-") as folder:  # a short path, or wandb has its socket elsewhere
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield
        assert list(Path(folder).iterdir()) == []


def offline(**settings: Any) -> WandbReporter:
    settings = {"mode": "offline", "timeout_seconds": 120.0, **settings}
    return WandbReporter(settings=WandbReporter.Settings(**settings))


def online(server: Server, **settings: Any) -> WandbReporter:
    settings = {"base_url": server.url, "api_key": Secret(KEY), "timeout_seconds": 120.0, **settings}
    return WandbReporter(settings=WandbReporter.Settings(**settings))


@contextmanager
def giving_up_after(seconds: float, reporter: WandbReporter) -> Iterator[None]:
    """wandb gives up a server sooner than its process may take to start on a busy machine."""
    settings = reporter._settings
    reporter._settings = attrs.evolve(settings, timeout_seconds=seconds)
    yield
    reporter._settings = settings


def begin(run: Course) -> list[Event]:
    return [run.tell(RunSubmitted(trainer="flights", max_steps=30)), run.tell(RunStarted(device="cpu"), step=0)]


def steps(run: Course, *steps: int) -> list[Event]:
    return [run.tell(Metrics(metrics={"train/loss": 1 / step}, samples_per_second=9.0), step=step) for step in steps]


def files_of(run: Course) -> list[Path]:
    return sorted(run.run_dir.glob("wandb/*run-*/run-*.wandb"), key=lambda path: path.parent.name)


def records(path: Path) -> Iterator[Any]:
    return RunFile(path).new_records()


def rows(run: Course) -> list[tuple[int, dict[str, Any]]]:
    return [(row.number, row.values) for path in files_of(run) for row in rows_of(records(path))]


def processes() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "wandb" in command_of(child)]


def command_of(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):  # also of one that has ended, and waits for its parent
        return " ".join(process.cmdline())
    return ""


def test_a_run_over_two_attempts_is_one_run_of_wandb(course: MakeCourse, capfd: pytest.CaptureFixture[str]) -> None:
    run = course(job=JOB)
    environment, on_sigterm = dict(os.environ), signal.getsignal(signal.SIGTERM)
    told = [*begin(run), *steps(run, 10, 20), run.tell(Validation(metrics={"val/loss": None}, weight=1), step=20)]
    told.append(run.tell(CheckpointSaved(path="c/step-20", bytes=1, final=False, best={"val/loss": 0.5}), step=20))
    told.append(run.tell(RunPreempted(reason="SIGTERM"), step=20))
    run.report(offline(group="g", tags=["a", "b"]), [event for event in told for _ in range(2)])
    run.attempt = 2
    more = [run.tell(RunSubmitted(trainer="flights", max_steps=30)), run.tell(RunResumed(path="c/step-10"), step=10)]
    more += [*steps(run, 20, 30), run.tell(RunSucceeded(), step=30)]
    run.report(offline(group="g", tags=["a", "b"]), [*told[3:], *more])
    run.report(offline(), run.events)  # a replay adds nothing

    first, second = files_of(run)
    (began,), (went_on,) = [[one.run for one in records(path) if one.HasField("run")] for path in (first, second)]
    assert began.run_id == went_on.run_id == ID
    assert (began.project, began.display_name, began.run_group) == ("flights-delays", "flights-1", "g")
    assert (list(began.tags), went_on.resume) == (["a", "b"], True)
    config = {update.key: update.value_json for update in began.config.update}
    assert config["hyperparams"] == '{"lr":0.1,"sizes":[64,8],"token":{"$secret":"env:T"}}'
    assert (config["max_steps"], config["labels"]) == ("30", '{"team":"a"}')
    assert "env" not in config["resources"]

    by_number = dict(rows(run))
    assert list(by_number) == sorted(by_number), "each event once, in order"
    curve = [(row["host/step"], row["train/loss"]) for _, row in rows(run) if "train/loss" in row]
    assert curve == [(10, 1 / 10), (20, 1 / 20), (30, 1 / 30)]
    assert math.isnan(by_number[5]["val/loss"])
    assert by_number[3]["_timestamp"] == 1_700_000_002
    assert (by_number[3]["host/samples_per_second"], by_number[5]["host/step"]) == (9, 20)
    assert (by_number[6]["host/checkpoint"], by_number[6]["host/best/val/loss"]) == ("c/step-20", 0.5)
    assert [row["host/status"] for _, row in rows(run) if "host/status" in row] == [
        "running", "preempted", "running", "succeeded",
    ]  # fmt: skip
    assert [one.exit.exit_code for path in (first, second) for one in records(path) if one.HasField("exit")] == [75, 0]
    assert [any(one.HasField("preempting") for one in records(path)) for path in (first, second)] == [True, False]
    metrics = [one.metric for one in records(first) if one.HasField("metric")]
    assert [metric.step_metric for metric in metrics if metric.glob_name == "*"] == ["host/step"]

    assert processes() == []
    assert (dict(os.environ), signal.getsignal(signal.SIGTERM)) == (environment, on_sigterm)
    assert capfd.readouterr() == ("", "")
    assert {path.name for path in run.run_dir.iterdir()} == {"logs", "wandb"}


def test_a_process_of_wandb_that_dies_is_an_outage_and_costs_nothing(course: MakeCourse) -> None:
    run, reporter = course(job=JOB), offline()
    told = [run.tell(RunSubmitted(trainer="flights", max_steps=30)), *steps(run, 10, 20), run.tell(RunSucceeded())]
    reporter.open(run.ctx())
    for event in told[:2]:
        reporter.report_event(event)
    for child in processes():
        child.kill()
    with pytest.raises(TransientError, match="the process of wandb has ended"):
        reporter.report_event(told[2])
    for event in told[2:]:
        reporter.report_event(event)
    reporter.close()
    assert [number for number, _ in rows(run)] == [1, 2, 3, 4]
    assert processes() == []


def test_offline_it_connects_to_nothing_and_hears_nothing_of_the_environment(
    course: MakeCourse, wandb_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"MODE": "disabled", "RUN_ID": "other", "PROJECT": "other", "SERVICE": "3-1-tcp-x-1"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    run = course(job=JOB)
    reporter = offline(base_url=wandb_server.url, dir=tmp_path / "shared", name="n", project="p")
    run.report(reporter, [*begin(run), run.tell(RunSucceeded(), step=1)])
    assert wandb_server.requests == 0
    (path,) = (tmp_path / "shared" / "wandb").glob(f"offline-run-*/run-{ID}.wandb")
    (found,) = [one.run for one in records(path) if one.HasField("run")]
    assert (found.project, found.display_name) == ("p", "n")
    assert list(run.run_dir.iterdir()) == [run.run_dir / "logs"]


def curve(history: list[dict[str, Any]]) -> list[tuple[int, float]]:
    return [(row["host/step"], row["train/loss"]) for row in history if "train/loss" in row]


def test_wandb_sync_uploads_the_files_of_all_attempts_as_one_run(course: MakeCourse, wandb_server: Server) -> None:
    run = course(job=JOB)
    run.report(offline(), [*begin(run), *steps(run, 10, 20), run.tell(RunPreempted(), step=20)])
    run.attempt = 2
    error = RunError(type="ValueError", message="no")
    run.report(offline(), [*begin(run), *steps(run, 20, 30), run.tell(RunFailed(error=error), step=30)])
    environment = {**os.environ, "WANDB_BASE_URL": wandb_server.url, "WANDB_API_KEY": KEY}
    sync = [sys.executable, "-m", "wandb", "sync", "--yes", *(str(path.parent) for path in files_of(run))]
    subprocess.run(sync, env=environment, cwd=run.run_dir, check=True, capture_output=True, timeout=120)
    ((name, found),) = wandb_server.runs.items()
    assert (name, found.project, found.exit_code) == (ID, "flights-delays", 1)
    assert curve(found.history) == [(10, 1 / 10), (20, 1 / 20), (30, 1 / 30)]
    assert found.summary["host/reason"] == "ValueError: no"


def test_with_a_server_a_resumed_run_goes_on_in_the_same_run(course: MakeCourse, wandb_server: Server) -> None:
    run = course(job=JOB)
    told = [*begin(run), *steps(run, 10, 20), run.tell(RunPreempted(), step=20)]
    run.report(online(wandb_server), told)
    assert wandb_server.runs[ID].exit_code == 75
    run.attempt = 2
    run.report(online(wandb_server), [*told[2:], *begin(run), *steps(run, 30), run.tell(RunSucceeded(), step=30)])
    ((name, found),) = wandb_server.runs.items()
    assert (name, found.project, found.said["displayName"], found.exit_code) == (ID, "flights-delays", "flights-1", 0)
    assert curve(found.history) == [(10, 1 / 10), (20, 1 / 20), (30, 1 / 30)]
    assert [row["_step"] for row in found.history] == sorted({row["_step"] for row in found.history})
    assert len(files_of(run)) == 2, "one for each attempt"
    assert all(KEY.encode() not in path.read_bytes() for path in run.run_dir.rglob("*") if path.is_file())


@pytest.mark.parametrize("answers", ["503", "nothing"])
def test_what_a_server_has_not_taken_it_is_told_by_a_replay(
    answers: str, course: MakeCourse, wandb_server: Server
) -> None:
    run, reporter = course(job=JOB), online(wandb_server)
    told = [*begin(run), *steps(run, 10, 20), run.tell(RunSucceeded(), step=20)]
    reporter.open(run.ctx())
    with giving_up_after(5, reporter):
        reporter.report_event(told[0])
    wandb_server.answers = answers
    for event in told[1:]:
        reporter.report_event(event)  # wandb's file takes them
    with pytest.raises(TransientError, match="has not taken everything") as caught:
        reporter.close()
    assert f"wandb sync {files_of(run)[0].parent}" in (caught.value.hint or "")
    assert processes() == []
    wandb_server.answers = "200"
    wandb_server.go_on.set()
    run.report(online(wandb_server), told)
    found = wandb_server.runs[ID]
    assert (curve(found.history), found.exit_code) == ([(10, 1 / 10), (20, 1 / 20)], 0)


@pytest.mark.parametrize("answers", ["503", "nothing"])
def test_a_server_that_is_away_when_a_run_begins_is_transient(
    answers: str, course: MakeCourse, wandb_server: Server
) -> None:
    run, reporter = course(job=JOB), online(wandb_server)
    reporter.open(run.ctx())
    told = [*begin(run), *steps(run, 10), run.tell(RunSucceeded(), step=10)]
    wandb_server.answers = answers
    failing = pytest.raises(TransientError, match="wandb: Failed to get resume status")
    with failing, giving_up_after(3, reporter):
        reporter.report_event(told[0])
    wandb_server.answers = "200"
    wandb_server.go_on.set()
    for event in told:
        reporter.report_event(event)
    reporter.close()
    assert curve(wandb_server.runs[ID].history) == [(10, 1 / 10)]
    assert processes() == []


@pytest.mark.parametrize("answers", ["401", "403", "404"])
def test_a_server_that_refuses_is_fatal(answers: str, course: MakeCourse, wandb_server: Server) -> None:
    run, reporter = course(job=JOB), online(wandb_server)
    wandb_server.answers = answers
    with pytest.raises(FatalError, match=f"error {answers}") as caught:
        run.report(reporter, begin(run))
    assert "api_key" in (caught.value.hint or "")
    assert KEY not in str(caught.value)
    reporter.close()
    assert processes() == []


def test_a_key_that_is_none_is_fatal(
    course: MakeCourse, wandb_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    run, reporter = course(job=JOB), online(wandb_server, api_key=None)
    with pytest.raises(FatalError, match="wandb: ") as caught:
        run.report(reporter, begin(run))
    assert '"mode": "offline"' in (caught.value.hint or "")
    reporter.close()
