"""``--detach``: a run that is submitted, and goes on without the terminal it was started from."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from command_line import COMMAND

from hostcore.events.writer import now_ms
from hostcore.runs.directory import RunDirectory
from hostcore.runs.launch import Launch
from hostcore.runs.record import RunRecord

SLOW = {"trainer": "small_trainer:Slow", "max_steps": 10**6, "metric_every": 1}


def status(project: Any, run_id: str) -> str:
    return project.command("status", run_id, "--json").json["status"]


def launch_of(project: Any, run_id: str) -> dict[str, Any]:
    return json.loads((project.run(run_id).path / "config" / "launch.json").read_text())


class TestARunThatWasDetached:
    @pytest.fixture(scope="class")
    @classmethod
    def submitted(cls, project: Any, until: Callable) -> Any:
        """Submitted from a terminal that was closed in the middle of the run, whose shell is dead."""
        terminal, inside = os.openpty()
        job = project.job("apart.json", run_id="apart", terminal=True, **SLOW)
        # The first terminal that the leader of a session opens is the one whose end it is told of.
        command = f"exec <{os.ttyname(inside)}; {COMMAND} run {job} --detach --json >said.json; exec sleep 1000"
        shell = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=project.path,
            env=project.environment,
            stdin=subprocess.DEVNULL,
            stderr=inside,
            start_new_session=True,
        )
        os.close(inside)
        until((project.path / "apart.pid").exists, "the third step")
        said = project.path / "said.json"  # of a command that may take longer than the run to its third step
        until(lambda: said.read_text().endswith("\n"), "what the command says")
        os.close(terminal)
        assert shell.wait() == -signal.SIGHUP, "the terminal's own processes are told that it is gone"
        return json.loads(said.read_text())

    def test_is_told_in_one_document(self, submitted: Any, project: Any) -> None:
        assert list(submitted) == ["run_id", "status", "directory", "launch"]
        assert (submitted["run_id"], submitted["status"]) == ("apart", "submitted")
        assert submitted["directory"] == str(project.run("apart").path)
        assert submitted["launch"] == launch_of(project, "apart")["handle"]
        assert submitted["launch"]["launcher"] == "local"

    def test_goes_on_when_its_terminal_is_closed(self, submitted: Any, project: Any, until: Callable) -> None:
        steps = len(project.run("apart").metric())
        until(lambda: len(project.run("apart").metric()) > steps + 3, "more steps")
        assert status(project, "apart") == "running"
        pid = submitted["launch"]["details"]["pid"]
        assert json.loads((project.run("apart").path / "attempts" / "1.json").read_text())["process"]["pid"] == pid
        assert os.getsid(pid) == pid

    def test_is_refused_to_others_while_it_runs(self, submitted: Any, project: Any) -> None:
        for command in ("run", project.path / "apart.json"), ("resume", "apart"):
            said = project.command(*command, "--detach", "--json")
            assert (said.code, said.json["errors"][0]["code"]) == (2, "run.conflict")

    def test_is_cancelled_like_any_other(self, submitted: Any, project: Any, until: Callable) -> None:
        said = project.command("cancel", "apart", "--json")
        assert (said.code, said.json["status"], said.json["attempt"]) == (0, "cancelled", 1)
        assert project.run("apart").names()[-1] == "run_cancelled"
        log = project.run("apart").path / "logs" / "supervisor.log"
        until(lambda: "cancelled  apart" in log.read_text(), "the last words of its supervisor")

    def test_is_gone_on_with_apart_again(self, submitted: Any, project: Any, until: Callable) -> None:
        project.command("cancel", "apart")
        step = project.run("apart").result["step"]
        said = project.command("resume", "apart", "--detach", "--set", f"max_steps={step + 3}")
        assert (said.code, said.out.splitlines()[0]) == (0, "submitted  apart")
        assert "hostcore logs -f apart" in said.out
        until(lambda: project.run("apart").result["attempt"] == 2, "the end of the second attempt")
        until(lambda: not (project.run("apart").path / "lease.json").exists(), "its supervisor to let go of it")
        result = project.run("apart").result
        assert (result["status"], result["step"]) == ("succeeded", step + 3)
        assert launch_of(project, "apart")["attempt"] == 2
        finished = project.command("resume", "apart", "--detach")
        assert finished.out.startswith("succeeded  apart  (finished before: nothing to do)")


class TestAnInvalidJob:
    @pytest.mark.parametrize(
        "keys", [{"max_steps": -1}, {"trainer": "small_trainer:LeavesAThread"}], ids=["the host", "the worker"]
    )
    def test_is_refused_before_anything_is_made(self, project: Any, keys: dict[str, Any]) -> None:
        job = project.job("invalid.json", run_id="invalid", **{"max_steps": 3, **keys})
        said = project.command("run", job, "--detach", "--json")
        assert said.code == 2
        assert said.json["errors"]
        assert not project.run("invalid").path.exists()

    @pytest.mark.parametrize(
        ("way", "key"),
        [("run", "gpus_per_node"), ("run --in-process", "num_nodes"), ("validate", "num_nodes")],
    )
    def test_that_asks_this_machine_for_what_takes_an_engine_is_refused(self, project: Any, way: str, key: str) -> None:
        job = project.job("large.json", run_id="large", max_steps=3, resources={key: 2})
        said = project.command(*way.split(), job, "--json")
        assert said.code == 2
        (error,) = said.json["errors"]
        assert (error["pointer"], error["file"]) == (f"/resources/{key}", str(job))
        assert "the launcher local starts processes of this machine" in error["message"]
        assert not project.run("large").path.exists()

    def test_that_only_training_shows_is_a_run_that_failed(self, project: Any, until: Callable) -> None:
        """Nobody watches any more, so it is not withdrawn."""
        job = project.job("later.json", run_id="later", max_steps=3, hyperparams={"how": "invalid", "at": 1})
        assert project.command("run", job, "--detach").code == 0
        until((project.run("later").path / "result.json").exists, "the end")
        result = project.run("later").result
        assert (result["status"], result["attempt"]) == ("failed", 1)
        assert "the labels are all the same" in result["error"]["message"]


def test_a_supervisor_that_cannot_begin_says_why_in_the_result_of_the_run(project: Any) -> None:
    """A run as ``--detach`` leaves it, whose reporter is not installed any more."""
    directory = RunDirectory(project.run("bad").path)
    directory.make()
    job = {**SLOW, "run_id": "bad", "reporters": ["uninstalled"]}
    RunRecord(job=job, job_dir=str(project.path)).write(directory.record)
    Launch(attempt=1, submitted_ms=now_ms()).write(directory.launch)
    assert project.command("resume", directory.path, "--launched").code == 2
    result = project.run("bad").result
    assert (result["status"], result["attempt"], result["step"]) == ("failed", 1, 0)
    assert "uninstalled" in result["error"]["message"]
    assert project.run("bad").names() == ["run_failed"]
