"""What Slurm says of a job, and what the launcher ``slurm`` makes of it. The texts are those of Slurm 22.05."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore_engines.slurm import commands
from hostcore_engines.slurm.launcher import SlurmLauncher
from hostcore_engines.slurm.request import mebibytes
from hostcore_engines.slurm.states import SlurmJob, parse_job, status_at_the_end, status_under_way
from hostcore_hookspecs import FatalError, LaunchHandle, LaunchStatus, TransientError

Settings = SlurmLauncher.Settings

SHOWN = """\
JobId=7 JobName=slow
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   Priority=4294901757 Nice=0 Account=(null) QOS=(null)
   JobState=PENDING Reason=BeginTime Dependency=(null)
   Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:00 TimeLimit=UNLIMITED TimeMin=N/A
   SubmitTime=2026-11-21T16:46:26 EligibleTime=2026-11-21T16:48:27
   AccrueTime=2026-11-21T16:48:27
   StartTime=2026-11-21T16:48:27 EndTime=Unknown Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-21T16:46:19 Scheduler=Main
   Partition=main AllocNode:Sid=localhost:4825
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=node[1-2]
   BatchHost=node1
   NumNodes=2 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   Command=(null)
   WorkDir=/home/me/ JobState=COMPLETED Reason=None Dependency=
   Comment=hostcore:slow.1f
   StdOut=/home/me/
   JobState=FAILED/slurm-7.out
   Power=
"""

GONE = "slurm_load_jobs error: Invalid job id specified"


def job(state: str = "RUNNING", **more: Any) -> SlurmJob:
    return SlurmJob(id="7", name="slow", state=state, **more)


def test_a_job_is_read_from_what_scontrol_shows_and_users_write_nothing_into_it() -> None:
    assert parse_job(SHOWN) == job(
        "PENDING",
        reason="BeginTime",
        restarts=1,
        time_limit="UNLIMITED",
        start_time="2026-11-21T16:48:27",
        end_time="Unknown",
        nodes="node[1-2]",
    )


def test_something_else_than_a_job_is_no_job() -> None:
    with pytest.raises(ValueError, match="something else than a job"):
        parse_job("No jobs in the system")


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (job("PENDING", reason="Resources"), "submitted", "Resources (it waits for nodes to become free)"),
        (job("PENDING", reason="Priority", start_time="2026-11-22T08:00:00"), "submitted", "start 2026-11-22T08:00:00"),
        (
            job("PENDING", reason="ReqNodeNotAvail, UnavailableNodes:node7"),
            "submitted",
            "UnavailableNodes:node7 (a node that it needs is not available)",
        ),
        (job("PENDING", reason="SomethingNew"), "submitted", "waits: SomethingNew"),
        (job("PENDING", reason="BeginTime", restarts=1), "submitted", "requeued, and Slurm waits two minutes"),
        (job("CONFIGURING", nodes="node1"), "submitted", "made ready: node1"),
        (job("REQUEUE_HOLD", reason="launch failed requeued held"), "submitted", "launch failed requeued held"),
        (job("RUNNING", nodes="node[1-2]"), "running", "job 7 runs on node[1-2]"),
        (job("RUNNING", nodes="node1", restarts=2), "running", "runs on node1, start 3"),
        (job("COMPLETING"), "running", "is ending"),
        (job("SUSPENDED"), "running", "is suspended"),
        (job("STAGE_OUT"), "running", "stage_out"),
    ],
    ids=lambda one: one.state if isinstance(one, SlurmJob) else "",
)
def test_a_job_under_way_says_what_it_waits_for(found: SlurmJob, status: str, words: str) -> None:
    assert not found.is_over
    said = status_under_way(found)
    assert said.status == status
    assert words in said.message


SUCCEEDED = LaunchStatus(status="succeeded", exit_code=0)
FAILED = LaunchStatus(status="failed", message="the loss has exploded", exit_code=1)
PREEMPTED = LaunchStatus(status="preempted", message="received SIGUSR1", exit_code=75)


@pytest.mark.parametrize(
    ("found", "result", "code", "status", "words"),
    [
        (job("COMPLETED"), SUCCEEDED, 0, "succeeded", ""),
        (job("FAILED", exit_code=1), FAILED, 1, "failed", "the loss has exploded"),
        (job("TIMEOUT"), PREEMPTED, None, "preempted", "received SIGUSR1 (Slurm: TIMEOUT, its time limit was reached)"),
        (job("TIMEOUT", time_limit="01:00:00"), None, None, "failed", "its time limit was reached (01:00:00)"),
        (job("OUT_OF_MEMORY"), None, None, "failed", "memory_per_node_gb"),
        (job("OUT_OF_MEMORY"), FAILED, None, "failed", "the loss has exploded (Slurm: OUT_OF_MEMORY"),
        (job("NODE_FAIL"), None, None, "failed", "a node of it has failed"),
        (job("BOOT_FAIL"), None, None, "failed", "could not be booted"),
        (job("DEADLINE"), None, None, "failed", "deadline"),
        (job("PREEMPTED"), None, None, "preempted", "it was preempted"),
        (job("CANCELLED"), None, None, "cancelled", "CANCELLED: it was cancelled"),
        (job("CANCELLED"), PREEMPTED, None, "cancelled", "it wrote a checkpoint"),
        (job("CANCELLED"), SUCCEEDED, 0, "succeeded", ""),
        (job("FAILED", reason="JobLaunchFailure"), None, None, "failed", "see the run directory"),
        (job("FAILED", exit_code=3), None, None, "failed", "it ended with 3, without a result"),
        (job("FAILED", signal=9), None, None, "failed", "it was killed by signal 9"),
        (job("FAILED", exit_code=130), None, None, "cancelled", "before it began"),
        (job("COMPLETED"), None, 0, "lost", "it ended without a result"),
        (None, SUCCEEDED, 0, "succeeded", ""),
        (None, None, 7, "failed", "it ended with 7"),
        (None, None, 75, "preempted", "before it began"),
        (None, None, None, "lost", "does not know the job any more"),
    ],
)
def test_an_end_is_what_the_run_says_and_else_what_slurm_says(
    found: SlurmJob | None, result: LaunchStatus | None, code: int | None, status: str, words: str
) -> None:
    assert found is None or found.is_over
    said = status_at_the_end(found, result, code, log="slurm-7.out")
    assert said.status == status
    assert words in said.message


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """``played(name, script)``: a command of Slurm's that does what a shell script says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def play(name: str, script: str) -> Path:
        file = folder / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return folder

    return play


@pytest.fixture
def handle(tmp_path: Path) -> LaunchHandle:
    run_dir = tmp_path / "run"
    (run_dir / "config").mkdir(parents=True)
    details = {"run_dir": str(run_dir), "name": "slow", "launch": "slow.1f", "earlier_result": None}
    return LaunchHandle(launcher="slurm", id="7", details=details)


def test_a_number_that_slurm_has_given_to_another_job_is_forgotten(
    played: Callable[[str, str], Path], handle: LaunchHandle
) -> None:
    played("scontrol", f"cat <<'END'\n{SHOWN}END")
    assert SlurmLauncher().poll(handle).status == "submitted"
    other = attrs.evolve(handle, details={**handle.details, "name": "quick"})
    assert SlurmLauncher().poll(other).status == "lost"
    SlurmLauncher().cancel(other, 0)  # there is no scancel to be called


def test_a_shared_file_system_that_is_late_does_not_make_a_run_fail(
    played: Callable[[str, str], Path], handle: LaunchHandle
) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%S")
    ended = SHOWN.replace("JobState=PENDING Reason=BeginTime", "JobState=COMPLETED Reason=None", 1)
    played("scontrol", f"cat <<'END'\n{ended.replace('EndTime=Unknown', f'EndTime={now}')}END")
    assert SlurmLauncher().poll(handle).status == "running"
    run_dir = Path(handle.details["run_dir"])
    (run_dir / "result.json").write_text('{"status": "succeeded", "exit_code": 0}')
    (run_dir / "config" / "slurm.7.end").write_text("0\n")
    assert SlurmLauncher().poll(handle).status == "succeeded"


@pytest.mark.parametrize(
    "said",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Socket timed out on send/recv operation",
        "slurm_load_jobs error: Zero Bytes were transmitted or received",
        "scontrol: error: Slurm backup controller in standby mode",
        "slurm_load_jobs error: Protocol authentication error",
        "slurm_load_jobs error: Invalid authentication credential",
        "scontrol: error: nobody has thought of this",
    ],
)
def test_a_controller_that_does_not_answer_is_asked_again(
    played: Callable[[str, str], Path], handle: LaunchHandle, said: str
) -> None:
    played("scontrol", f"echo '{said}' >&2; exit 1")
    for call in (lambda: SlurmLauncher().poll(handle), lambda: SlurmLauncher().cancel(handle, 0)):
        with pytest.raises(TransientError, match=said.partition("error: ")[2][:12]):
            call()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("kill -INT $$", "sbatch was ended by signal 2"),
        ("kill -TERM $$", "sbatch was ended by signal 15"),
        ("echo 'sbatch: error: Batch job submission failed: Protocol authentication error' >&2; exit 1", "Protocol"),
        ("echo 'sbatch: error: Batch job submission failed: Communication connection failure' >&2; exit 1", "Commun"),
        ("echo 'sbatch: error: Munge encode failed: Failed to access the socket' >&2; exit 1", "Munge"),
        ("echo 'the filter has opinions'", "printed no job id: the filter has opinions"),
    ],
)
def test_a_submission_that_may_have_happened_is_no_refusal(
    played: Callable[[str, str], Path], script: str, words: str
) -> None:
    played("sbatch", script)
    with pytest.raises(TransientError, match=words):
        commands.submit("#!/bin/bash\n", [], {})


def test_what_slurm_has_said_no_to_is_refused(played: Callable[[str, str], Path]) -> None:
    played("sbatch", "echo 'sbatch: error: Invalid --sockets-per-node specification' >&2; exit 1")
    played("scancel", "echo 'scancel: error: Kill job error on job id 7: Access/permission denied' >&2; exit 1")
    for call in (lambda: commands.submit("#!/bin/bash\n", [], {}), lambda: commands.cancel("7")):
        with pytest.raises(FatalError, match="refused: "):
            call()


def test_what_interrupts_this_process_does_not_reach_slurms_commands(played: Callable[[str, str], Path]) -> None:
    """A terminal, and a service manager that stops a service, signal a whole process group."""
    played("sbatch", f"echo said by a filter; '{sys.executable}' -IS -c 'import os; print(os.getpgrp())'")
    assert int(commands.submit("#!/bin/bash\n", [], {})) != os.getpgrp()


def test_a_machine_without_slurm_is_an_error_that_says_so(
    played: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(played("other", "")))
    with pytest.raises(FatalError, match="no program sbatch") as caught:
        commands.submit("#!/bin/bash\n", [], {})
    assert "login node" in (caught.value.hint or "")


def test_the_script_is_submitted_with_the_runs_variables_and_without_those_that_overrule_it(
    played: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = played("sbatch", 'printf "%s\\n" "$@" >"$0.args"; env >"$0.env"; cat >"$0.script"; echo "42;east"')
    for name in ("SBATCH_PARTITION", "SBATCH_ACCOUNT", "SLURM_JOB_ID", "SBATCH_EXPORT", "SLURM_CONF"):
        monkeypatch.setenv(name, "theirs")
    script = "#!/bin/bash\n#SBATCH --partition=gpu\necho 1\n"
    assert commands.submit(script, ["--output=/a b"], {"KEY": "a\nb $(c)"}) == "42"
    assert (folder / "sbatch.script").read_text() == script
    assert (folder / "sbatch.args").read_text().splitlines() == ["--parsable", "--export=ALL", "--output=/a b"]
    environment = (folder / "sbatch.env").read_text()
    assert "KEY=a\nb $(c)\n" in environment
    theirs = {line.partition("=")[0] for line in environment.splitlines() if line.endswith("=theirs")}
    assert theirs == {"SBATCH_ACCOUNT", "SLURM_CONF"}


@pytest.mark.parametrize("gone", [GONE, "scancel: error: Kill job error on job id 7: Invalid job id specified"])
def test_what_is_gone_is_no_error(played: Callable[[str, str], Path], gone: str) -> None:
    for name in ("scontrol", "scancel"):
        played(name, f"echo '{gone}' >&2; exit 1")
    assert commands.show("7") is None
    assert commands.cancel("7") is False


@pytest.mark.parametrize("limit", [90, "90", "90:00", "8:00:00", "1-12", "1-12:30", "1-12:30:00"])
def test_a_time_limit_is_written_as_slurm_writes_it(limit: int | str) -> None:
    SlurmLauncher(settings=Settings(time_limit=limit))


@pytest.mark.parametrize(
    ("gigabytes", "expected"),
    [(1.048576, 1000), (549.755813888, 512 * 1024), (64, 61036), (0.1, 96), (1e3, 953675)],
)
def test_memory_is_asked_for_in_mib_and_never_too_little(gigabytes: float, expected: int) -> None:
    assert mebibytes(gigabytes) == expected
