"""The commands of the ``trn`` plan: where they put a run, and to whom they tell its events."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def events(path: Path) -> list[dict[str, Any]]:
    return lines(path.read_text())


@pytest.fixture(scope="module")
def trained(project: Any) -> Any:
    """The training that the document shows."""
    (project.path / "w.pt").touch()
    profiles = {"prod": {"checkpoint_every": 10}}
    project.job(run_id="trn", max_steps=20, profiles=profiles, reporters=["terminal"], device="auto")
    return project.command(
        *("run", "--config", "job.json", "--weights", "w.pt", "--profile", "prod", "--devices", "cpu"),
        *("--log-dir", "build/logs", "--event-log", "build/events/training.jsonl"),
        *("--manifest", "build/logs/jobs/index.jsonl"),
    )


def test_the_event_log_begins_with_job_submitted(trained: Any, project: Any) -> None:
    assert trained.code == 0, trained.err
    assert "everything  build/logs/trn\n" in trained.out
    assert not project.run("trn").path.exists()
    told = events(project.path / "build/events/training.jsonl")
    expected = {
        "event": "job_submitted",
        "job_id": "trn",
        "config_path": str(project.path / "job.json"),
        "devices": ["cpu"],
        "weights": str(project.path / "w.pt"),
        "profile": "prod",
    }
    assert told[0].items() >= expected.items()
    assert told[-1]["event"] == "job_completed"
    log = events(project.path / "build/logs/trn/logs/events.jsonl")
    assert [line["seq"] for line in told] == [line["seq"] for line in log]
    index = [one for one in events(project.path / "build/logs/jobs/index.jsonl") if one["job_id"] == "trn"]
    assert [(one["status"], one["exit_code"]) for one in index] == [("submitted", None), ("succeeded", 0)]
    assert index[-1]["config_path"] == str(project.path / "job.json")


def test_status_list_and_logs_find_the_job_in_the_folder_that_is_named(trained: Any, project: Any) -> None:
    there = ("--log-dir", "build/logs")
    assert project.command("status", "trn", *there, "--json").json["status"] == "succeeded"
    assert [run["run_id"] for run in project.command("list", *there, "--limit", "1", "--json").json["runs"]] != []
    assert project.command("logs", "trn", "--runs-dir", "build/logs", "--json").out.count("\n") > 5
    assert project.command("status", "trn").code == 2
    by_variable = project.command("list", "--json", HOSTCORE_RUNS_DIR="build/logs")
    assert "trn" in [run["run_id"] for run in by_variable.json["runs"]]


def test_resume_begins_a_new_run_from_the_checkpoint_that_an_event_names(trained: Any, project: Any) -> None:
    told = events(project.path / "build/events/training.jsonl")
    meta = next(line["meta"] for line in told if line["event"] == "checkpoint")
    options = ("--log-dir", "build/logs", "--event-log", "build/events/next.jsonl", "--set", "run_id=next")
    said = project.command("resume", "--checkpoint", meta, *options)
    assert said.code == 0, said.err
    result = json.loads((project.path / "build/logs/next/result.json").read_text())
    assert (result["status"], result["step"]) == ("succeeded", 20)
    assert events(project.path / "build/events/next.jsonl")[0]["event"] == "job_submitted"


def test_a_run_that_goes_on_tells_its_event_log_nothing_twice(project: Any) -> None:
    job = project.job(run_id="twice", max_steps=5)
    path = project.path / "twice.jsonl"
    for steps, command in ((5, ["run", job]), (10, ["run", job]), (15, ["resume", "twice"])):
        said = project.command(*command, "--event-log", "twice.jsonl", "--set", f"max_steps={steps}")
        assert said.code == 0, said.err
    assert (
        project.command("resume", "twice", "--set", "max_steps=20").code == 0
    )  # the run has its log without the option
    assert path.read_text() == (project.run("twice").path / "logs/events.jsonl").read_text()
    assert project.run("twice").result["attempt"] == 4


def test_standard_output_has_the_events_alone(project: Any) -> None:
    job = project.job(run_id="printed", max_steps=5, reporters=["terminal"], terminal=True)
    said = project.command("run", job, "--event-log", "-")
    assert said.code == 0
    assert said.out == (project.run("printed").path / "logs/events.jsonl").read_text()
    assert "succeeded  printed\n" in said.err
    longer = project.command("resume", "printed", "--set", "max_steps=10", "--event-log", "-", "--event-format", "trn")
    assert lines(longer.out)[0]["event"] == "job_submitted"
    assert {line["attempt"] for line in lines(longer.out)} == {2}  # the first command has printed the others
    record = json.loads((project.run("printed").path / "config/run.json").read_text())
    assert record["job"]["reporters"] == ["terminal"]  # the run itself does not print


def test_what_a_trainer_prints_in_this_process_stays_apart_from_the_events(project: Any) -> None:
    said = project.command("run", project.job(run_id="here", max_steps=5), "--in-process", "--event-log", "-")
    assert said.out == (project.run("here").path / "logs/events.jsonl").read_text()
    assert "hello from the trainer" in said.err


def test_a_reader_that_leaves_does_not_hurt_the_run(project: Any) -> None:
    job = project.job(run_id="left", max_steps=60, metric_every=1, hyperparams={"seconds": 0.01})
    command = project.start("run", job, "--event-log", "-")
    first = command.process.stdout.readline()
    command.process.stdout.close()
    assert json.loads(first)["event"] == "run_submitted"
    command.process.stdout = None
    assert command.end().code == 0
    run = project.run("left")
    assert run.result["status"] == "succeeded"
    assert "reporter_failed" not in run.names()
    told = [event["message"] for event in run.events if event["event"] == "warning"]
    assert not [message for message in told if "event" in message or "reporter" in message]


@pytest.fixture
def unread(project: Any, until: Callable) -> Any:
    """A run that has ended, and its command, whose standard output nobody has read."""
    job = project.job(run_id="unread", max_steps=700, metric_every=1)  # more than a pipe holds
    command = project.start("run", job, "--event-log", "-")
    until((project.run("unread").path / "result.json").exists, "the end of the run")
    return project.run("unread"), command


def test_a_reader_that_does_not_read_does_not_hold_the_run_up(unread: Any) -> None:
    run, command = unread
    assert run.result["status"] == "succeeded"
    said = command.end()  # which reads
    assert said.code == 0
    assert said.out == (run.path / "logs/events.jsonl").read_text()
    shutil.rmtree(run.path)


def test_a_detached_run_writes_its_event_log_and_its_index(project: Any) -> None:
    job = project.job(run_id="apart", max_steps=5)
    told = ("--event-log", "apart.jsonl", "--manifest", "apart-index.jsonl", "--runs-dir", "far")
    assert project.command("run", job, "--detach", *told).code == 0
    assert project.command("status", "-f", "far/apart").code == 0
    assert [line["event"] for line in events(project.path / "apart.jsonl")][-1] == "run_succeeded"
    assert [line["status"] for line in events(project.path / "apart-index.jsonl")] == ["submitted", "succeeded"]


def test_the_index_can_be_written_anew_from_the_run_directories(project: Any) -> None:
    assert project.command("run", project.job(run_id="anew", max_steps=5), "--runs-dir", "indexed").code == 0
    for _ in range(2):  # nothing is told twice
        said = project.command("replay", "anew", "--runs-dir", "indexed", "--reporter", "job-index")
        assert said.code == 0, said.err
    index = events(project.path / "indexed/index.jsonl")
    assert [line["status"] for line in index] == ["submitted", "succeeded"]
    with (project.path / "indexed/index.jsonl").open("a") as file:
        file.write('torn {"job_id": ')
    listed = project.command("list", "--runs-dir", "indexed", "--json")
    assert [run["run_id"] for run in listed.json["runs"]] == ["anew"]
    assert listed.err == ""


def test_a_signal_ends_the_wait_for_a_reader(unread: Any) -> None:
    _, command = unread
    command.signal(signal.SIGINT)
    assert command.process.wait(timeout=300) == 0
    assert lines(command.end().out.rpartition("\n")[0])[0]["event"] == "run_submitted"
