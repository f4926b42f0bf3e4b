"""``hostcore cancel``, on real runs in every state; and being asked to stop before there is a run."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from command_line import COMMAND

from hostcore.events.writer import now_ms
from hostcore.runs.directory import RunDirectory
from hostcore.runs.launch import Launch
from hostcore.runs.record import RunRecord

ENDS = {"run_succeeded", "run_failed", "run_cancelled", "run_preempted"}
SLOW = {"trainer": "small_trainer:Slow", "max_steps": 10**6, "metric_every": 1}
HANG = {"max_steps": 10, "hyperparams": {"how": "hang", "at": 3}}
JOBS = {"asked": SLOW, "hangs": HANG, "lost": SLOW}

#: Starts a command without root's power to ignore permissions.
UNPRIVILEGED = (
    "import ctypes, os, sys\n"
    "for capability in (1, 2):\n"  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    "    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)\n"  # PR_CAPBSET_DROP
    # Whoever measures coverage would want to write, too.
    "environment = {name: value for name, value in os.environ.items() if not name.startswith('COVERAGE_')}\n"
    "os.execve(sys.argv[1], sys.argv[1:], environment)"
)


@pytest.fixture(scope="module")
def ended(project: Any, until: Callable) -> Mapping[str, Any]:
    """The finished commands: the runs, and what cancelled them. They run beside each other."""
    started = {
        run_id: project.start("run", project.job(f"{run_id}.json", run_id=run_id, **keys))
        for run_id, keys in JOBS.items()
    }
    for run_id in JOBS:
        until((project.path / f"{run_id}.pid").exists, f"the third step of {run_id}")
    started["lost"].signal(signal.SIGKILL)
    finished = {"lost": started.pop("lost").end()}
    cancels = {
        "cancel asked": ("cancel", "asked", "--reason", "the data was wrong", "--json"),
        "cancel asked too": ("cancel", "aske"),
        "cancel hangs": ("cancel", "hangs", "--no-wait", "--json"),
        "cancel lost": ("cancel", "lost", "--json"),
        "cancel lost too": ("cancel", "lost", "--json"),
    }
    started["asked"].signal(signal.SIGSTOP)  # so that it cannot end before both have asked
    for name, arguments in cancels.items():
        started[name] = project.start(*arguments)
    for name in ("cancel asked", "cancel asked too"):
        assert "asked to stop" in started[name].process.stderr.readline()
    started["asked"].signal(signal.SIGCONT)
    finished["cancel hangs"] = started.pop("cancel hangs").end()
    until((project.path / "hangs.canceled").exists, "the trainer that hangs to hear of it")
    started["force hangs"] = project.start("cancel", "hangs", "--force")
    return {**finished, **{name: command.end() for name, command in started.items()}}


def test_a_running_run_writes_a_checkpoint_and_ends_with_who_asked_and_why(ended: Mapping, project: Any) -> None:
    run = project.run("asked")
    result = run.result
    assert (ended["asked"].code, result["status"], result["exit_code"]) == (130, "cancelled", 130)
    assert (result["requested_by"], result["error"]) == ("user", None)
    assert result["reason"] in ("the data was wrong", "cancelled by the user"), "two have asked at once"
    assert result["final_checkpoint"] == f"checkpoints/step-{result['step']:06d}"
    assert [name for name in run.names() if name in ENDS] == ["run_cancelled"]
    said = ended["cancel asked"]
    assert list(said.json) == ["run_id", "status", "attempt", "requested", "result"]
    assert (said.code, said.json["status"], said.json["attempt"], said.json["requested"]) == (0, "cancelled", 1, True)
    assert said.json["result"] == result
    said = ended["cancel asked too"]
    assert (said.code, said.out.splitlines()[0]) == (0, "cancelled  asked")
    assert "hostcore resume asked" in said.out


def test_a_run_that_does_not_follow_need_not_be_waited_for_and_is_killed_by_force(ended: Mapping, project: Any) -> None:
    said = ended["cancel hangs"]
    assert said.code == 0
    assert said.json == {"run_id": "hangs", "status": "running", "attempt": 1, "requested": True, "result": None}
    assert ended["force hangs"].code == 0
    result = project.run("hangs").result
    assert (result["status"], result["step"], result["requested_by"]) == ("cancelled", 0, "user")
    assert "killed" in result["reason"]


def test_a_lost_run_is_ended_in_the_place_of_its_supervisor_and_keeps_the_checkpoint_of_its_worker(
    ended: Mapping, project: Any
) -> None:
    run = project.run("lost")
    assert (run.result["status"], run.result["attempt"], run.result["requested_by"]) == ("cancelled", 2, "user")
    assert project.command("status", "lost", "--json").json["status"] == "cancelled"
    assert run.names(attempt=1)[-3:] == ["stop_requested", "checkpoint_saved", "run_preempted"]
    assert run.names(attempt=2) == ["run_cancelled"]
    assert [event["seq"] for event in run.events] == list(range(1, len(run.events) + 1))
    assert run.result["final_checkpoint"] == f"checkpoints/step-{run.result['step']:06d}"
    for name in ("cancel lost", "cancel lost too"):
        assert (ended[name].code, ended[name].json["result"]) == (0, run.result)


@pytest.mark.parametrize("run_id", ["asked", "lost"])
def test_a_run_that_has_ended_stays_as_it_is(ended: Mapping, project: Any, run_id: str) -> None:
    before = project.run(run_id).tree()
    said = project.command("cancel", run_id)
    assert (said.code, said.out.splitlines()[0]) == (0, f"cancelled  {run_id}  (ended before: nothing to do)")
    again = project.command("cancel", project.run(run_id).path, "--json")
    assert (again.json["requested"], again.json["result"]) == (False, project.run(run_id).result)
    assert project.run(run_id).tree() == before


def submitted(project: Any, run_id: str) -> RunDirectory:
    """A run that is recorded, and about to be started by somebody who takes the time."""
    directory = RunDirectory(project.run(run_id).path)
    directory.make()
    job = {**SLOW, "run_id": run_id, "device": "cpu", "terminal": False}
    RunRecord(job=job, job_dir=str(project.path)).write(directory.record)
    Launch(attempt=1, submitted_ms=now_ms()).write(directory.launch)
    return directory


def test_a_submitted_run_is_cancelled_before_it_has_trained(project: Any, until: Callable) -> None:
    directory = submitted(project, "submitted")
    assert project.command("status", "submitted", "--json").json["status"] == "submitted"
    cancel = project.start("cancel", "submitted", "--json")
    until(directory.cancel_request(1).exists, "the request")
    assert project.command("resume", directory.path, "--launched").code == 130
    said = cancel.end()
    assert (said.code, said.json["status"], said.json["attempt"]) == (0, "cancelled", 1)
    assert (said.json["result"]["step"], said.json["result"]["requested_by"]) == (0, "user")
    assert project.run("submitted").names() == ["run_cancelled"]
    # Without a checkpoint it begins at its beginning.
    again = project.command("resume", "submitted", "--set", "max_steps=2", "--json")
    assert (again.code, again.json["attempt"], again.json["step"]) == (0, 2, 2)


def test_a_run_of_another_user_is_left_alone_with_a_word(ended: Mapping, project: Any, until: Callable) -> None:
    run = project.copy("lost", "theirs")
    (run.path / "result.json").unlink()
    folders = [run.path, *(path for path in run.path.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        said = subprocess.run(
            [sys.executable, "-c", UNPRIVILEGED, COMMAND, "cancel", "theirs", "--json"],
            cwd=project.path,
            env=project.environment,
            capture_output=True,
            check=False,
        )
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert said.returncode == 2
    (error,) = json.loads(said.stdout)["errors"]
    assert error["code"] == "run.unwritable"
    assert "the run 'theirs' cannot be cancelled: Permission denied" in error["message"]
    assert error["hint"].startswith("cancel it as ")


class TestBeforeThereIsARun:
    @pytest.mark.parametrize(
        ("number", "code", "arguments"),
        [(signal.SIGINT, 130, []), (signal.SIGTERM, 75, []), (signal.SIGINT, 130, ["--detach"])],
        ids=["ctrl-c", "sigterm", "detach"],
    )
    def test_a_signal_ends_the_command_and_leaves_nothing(
        self, site: Any, own_project: Callable, until: Callable, number: signal.Signals, code: int, arguments: list
    ) -> None:
        """A reporter's module is being imported, and takes for ever."""
        source = "import pathlib, time\npathlib.Path('importing').touch()\ntime.sleep(1000)\n"
        entry_points = {"hostcore.reporters": {"endless": "endless:Reporter"}}
        site.install("endless", modules={"endless.py": source}, entry_points=entry_points)
        project = own_project(site.environment)
        command = project.start("run", project.job(reporters=["endless"], max_steps=1), "--json", *arguments)
        until((project.path / "importing").exists, "the reporter to be imported")
        command.signal(number)
        said = command.end()
        assert said.code == code
        (error,) = said.json["errors"]
        assert error["code"] == "run.not_started"
        assert error["message"].endswith("before the run had begun; nothing was started")
        assert said.err == ""
        assert not (project.path / "runs").exists()

    def test_a_ctrl_c_while_others_are_waited_for_is_no_error(self, project: Any, until: Callable) -> None:
        """The waiting ends, the request stays."""
        directory = submitted(project, "unborn")
        command = project.start("cancel", "unborn")
        until(directory.cancel_request(1).exists, "the request")
        command.signal(signal.SIGINT)
        said = command.end()
        assert (said.code, said.out) == (130, "")
        assert "unborn is still asked to stop" in said.err
        assert "Traceback" not in said.err
