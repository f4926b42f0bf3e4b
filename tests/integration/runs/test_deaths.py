"""However a worker dies, the run has an honest end: one terminal event, result.json, an exit code."""

import os
import signal
import sys
from collections.abc import Mapping

import orjson
import pytest
from click.testing import CliRunner

from hostcore.cli import cli
from hostcore.runs import documents, history

ENDS = {"run_succeeded", "run_failed", "run_cancelled", "run_preempted"}
DEATHS = ("raise", "segfault", "exit", "sys.exit", "interrupt", "long")


@pytest.fixture(scope="module")
def dead(project, until) -> Mapping:
    """The finished commands, by the way in which the worker died in step 137. They run beside each other."""
    started = {}
    for how in DEATHS:
        job = project.job(f"{how}.json", run_id=how, max_steps=200, hyperparams={"how": how, "at": 137})
        started[how] = project.start("run", job)
    slow = project.job("killed.json", run_id="killed", trainer="small_trainer:Slow", max_steps=10**6, metric_every=1)
    started["killed"] = project.start("run", slow)
    until((project.path / "killed.pid").exists, "the third step of the run that will be killed")
    os.kill(project.run("killed").worker_pid, signal.SIGKILL)
    return {how: command.end() for how, command in started.items()}


@pytest.fixture(params=[*DEATHS, "killed"])
def how(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_run_has_one_honest_end_that_is_told_everywhere(dead: Mapping, project, how: str) -> None:
    said, run = dead[how], project.run(how)
    result, events, names = run.result, run.events, run.names()
    assert said.code == 1
    assert names[:3] == ["run_submitted", "run_started", "epoch_started"]
    assert [name for name in names if name in ENDS] == names[-1:] == ["run_failed"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert (result["status"], result["exit_code"], result["attempt"]) == ("failed", 1, 1)
    assert result["error"] == events[-1]["error"]
    assert f"error: {result['error']['type']}: {result['error']['message']}" in said.err
    assert f"failed  {how}" in said.out
    assert not (run.path / "lease.json").exists(), "nobody holds the run any more"


def test_what_the_worker_printed_is_in_its_log_and_not_on_the_terminal(dead: Mapping, project, how: str) -> None:
    output = project.run(how).output()
    assert "hello from the trainer\n" in output
    assert "a word on standard error\n" in output
    assert "hello from the trainer" not in dead[how].out


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("segfault", "SegmentationFault", "was killed by SIGSEGV"),
        ("exit", "WorkerDied", "exited with code 3"),
        ("killed", "WorkerDied", "was killed by SIGKILL"),
    ],
)
def test_a_worker_that_is_gone_is_told_as_what_it_died_of_with_its_metrics_up_to_the_end(
    dead: Mapping, project, how: str, kind: str, words: str
) -> None:
    run = project.run(how)
    error = run.result["error"]
    assert error["type"] == kind
    assert error["message"].startswith(f"the worker {words} after step ")
    assert error["hint"]
    if how == "segfault":
        assert "Segmentation fault" in error["traceback"]
        assert "_misbehave" in error["traceback"], "where it was"
    assert 3 in run.metric() if how == "killed" else list(run.metric()) == list(range(10, 131, 10))


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("sys.exit", "SystemExit", "I have had enough"),
        ("interrupt", "KeyboardInterrupt", "nobody has pressed Ctrl-C"),
    ],
)
def test_a_trainer_that_leaves_is_a_failure_like_any_other(
    dead: Mapping, project, how: str, kind: str, message: str
) -> None:
    result = project.run(how).result
    error = result["error"]
    assert (error["type"], error["message"]) == (kind, message)
    assert "in train_step" in error["traceback"]
    assert "small_trainer:Trainer" in error["plugin"]
    assert (result["requested_by"], result["step"]) == (None, 136)


def test_a_very_long_message_is_recorded_in_part_and_is_no_obstacle_to_any_command(dead: Mapping, project) -> None:
    error = project.run("long").result["error"]
    assert error["type"] == "ValueError"
    assert error["message"].startswith("xxx") and error["message"].endswith("xxx")
    assert "characters left out …]" in error["message"]
    assert "in train_step" in error["traceback"]
    run = project.copy("long", "long-again")
    assert all(path.stat().st_size < 1 << 20 for path in run.path.rglob("*") if path.is_file())
    assert project.command("status", "long-again", "--json").json["error"]["type"] == "ValueError"
    assert project.command("report", "long-again").code == 0
    assert "failed at step 136" in project.command("logs", "long-again").out
    changes = ("--set", "max_steps=100", "--set", "run_id=long-again", "--json")
    again = project.command("run", project.path / "long.json", *changes)
    assert (again.code, again.json["attempt"]) == (0, 2)
    assert run.names(attempt=2)[-1] == "run_succeeded"


def test_a_run_of_an_older_version_with_a_very_long_message_is_told_and_goes_on(
    dead: Mapping, project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its result and its log are longer than any reader takes."""
    monkeypatch.setattr(documents, "_MOST", 1 << 20)  # 64 MiB, which takes a minute to read
    monkeypatch.setattr(history, "LONGEST_RECORD", 1 << 20)
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(project.path / "runs"))
    monkeypatch.chdir(project.path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    run = project.copy("raise", "old")
    content = run.result | {"run_id": "old"}
    content["error"] |= {"message": "x" * 600_000, "traceback": "x" * 600_000}
    (run.path / "result.json").write_bytes(orjson.dumps(content))
    *before, end = run.events
    lines = [*before, {**end, "error": content["error"]}]
    (run.path / "logs" / "events.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))

    def told(*arguments: str) -> str:
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    status = orjson.loads(told("status", "old", "--json"))
    assert (status["status"], status["step"], status["error"]["type"]) == ("failed", 136, "ValueError")
    assert "bytes left out …]" in status["error"]["message"]
    assert status["attempts"][0]["error"]["type"] == "ValueError"
    assert "unreadable" not in told("list")
    told("report", "old")
    changes = ("--set", "max_steps=100", "--set", "run_id=old")
    again = told("run", "raise.json", *changes, "--in-process", "--json")
    sys.modules.pop("small_trainer")
    assert orjson.loads(again)["attempt"] == 2


def test_a_failed_run_is_started_again_by_the_same_command(dead: Mapping, project) -> None:
    run = project.copy("exit", "exit-again")
    again = project.command(
        "run", project.path / "exit.json", "--set", "max_steps=100", "--set", "run_id=exit-again", "--json"
    )
    assert (again.code, again.json["attempt"], again.json["step"]) == (0, 2, 100)
    assert run.names(attempt=1)[-1] == "run_failed"
    assert run.names(attempt=2)[-1] == "run_succeeded"


@pytest.mark.parametrize("at", [137, 200], ids=["early", "in_the_last_step"])
@pytest.mark.parametrize("where", ["apart", "in_process"])
def test_a_trainer_that_removes_its_run_directory_is_told_so(project, at: int, where: str) -> None:
    run_id = f"removed-{at}-{where}"
    job = project.job(f"{run_id}.json", run_id=run_id, max_steps=200, hyperparams={"how": "remove", "at": at})
    said = project.command("run", job, *(["--in-process"] if where == "in_process" else []))
    assert said.code == 1
    assert "error: RunDirectoryGone: the run directory was removed while the run was going on" in said.err
    assert "Traceback" not in said.err
    assert f"failed  {run_id}\n" in said.out
    assert "everything" not in said.out  # there is nothing any more
    assert not project.run(run_id).path.exists()
