"""Slurm's own commands, and what their complaints mean."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hostcore_engines.slurm.states import SlurmJob, parse_job
from hostcore_hookspecs import FatalError, TransientError

#: sbatch itself tries for some minutes when the controller is overloaded.
_SECONDS: Final = 120.0
#: Set by users for themselves: they change what the commands print, or whom they ask.
_NOT_OURS: Final = ("SQUEUE_", "SCANCEL_", "SCONTROL_", "SLURM_TIME_FORMAT")
#: sbatch prefers its variables to the options of a script.
_SBATCH_VARIABLES: Final = {"time": "TIMELIMIT", "mem": "MEM_PER_NODE"}
#: Of a job that submits another one; Slurm sets them anew, but not all.
_KEPT_SLURM: Final = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})

#: Lost answers and failed authentication: munged is restarted now and then.
_TRANSIENT: Final = re.compile(
    r"unable to (contact|establish)|standby mode|timed out|timeout|try again|temporarily (unable|unavailable)"
    r"|connection|communication|broken pipe|network is|no route to host|zero bytes were transmitted"
    r"|transport endpoint|(send|receive) failure|(unexpected|insane) message|authentication|credential|munge",
    re.IGNORECASE,
)
#: Errors of commands that query or cancel: every other failure of theirs leaves the job's state unknown.
_DENIED: Final = re.compile(r"permission denied|invalid user", re.IGNORECASE)
_UNKNOWN: Final = re.compile(
    r"invalid job id|job/step already complet|job has already finished|already completing", re.I
)

#: What a refusal is about: where in the job, and what to do.
_REFUSALS: Final = (
    ("partition", "/launcher/partition", "`sinfo --summarize` shows the partitions there are"),
    ("account", "/resources/namespace", "`sacctmgr show associations user=$USER` shows the accounts you may use"),
    ("qos", "/launcher/qos", "`sacctmgr show qos` shows those there are"),
    ("feature|constraint", "/launcher/constraint", "`sinfo --format='%N %f'` shows the features of the nodes"),
    ("time limit|--time", "/launcher/time_limit", "`sinfo --format='%P %l'` shows the limits of the partitions"),
    ("memory", "/resources/memory_per_node_gb", "`sinfo --Node --format='%N %m'` shows what the nodes have, in MiB"),
    ("gres|gpu|tres", "/resources/gpus_per_node", "`sinfo --Node --format='%N %G'` shows what the nodes have"),
    ("node count|more nodes", "/resources/num_nodes", "`sinfo --summarize` shows how many nodes there are"),
    ("option|reservation|license|dependency", "/launcher/options", "`man sbatch` describes each option"),
    ("cpu|node configuration", "/resources", "`sinfo --Node --long` shows what the nodes have"),
)


def submit(script: str, arguments: Sequence[str], env: Mapping[str, str]) -> str:
    """Submit a batch script.

    :param env: What its processes get beside the environment of this one.
    :return: The job's number.
    :raises TransientError: Slurm did not answer; the job may have been submitted.
    :raises FatalError: There is no Slurm here, or it refused.
    """
    done = _run(
        ["sbatch", "--parsable", "--export=ALL", *arguments],
        env={**_environment(_options_in(script)), **env},
        stdin=script,
    )
    if done.returncode:
        raise _failed(done)
    # The last line: a site's own filter may print before it.
    job = done.stdout.strip().rpartition("\n")[2].partition(";")[0]
    if not job.isdecimal():
        raise TransientError(f"sbatch has submitted a job, but printed no job id: {done.stdout.strip()}")
    return job


def show(job: str) -> SlurmJob | None:
    """Return the controller's record of a job; None if it does not know it, or not any more.

    :raises TransientError: It did not answer.
    """
    done = _run(["scontrol", "--all", "show", "job", job], env=_environment())
    if done.returncode == 0:
        return parse_job(done.stdout)
    if _UNKNOWN.search(done.stderr):
        return None
    raise _failed(done)


def find(comment: str) -> str | None:
    """The job of this user with a comment, the oldest if there are several; None if there is none.

    :raises TransientError: The controller did not answer.
    """
    listed = _run(
        ["squeue", "--all", "--noheader", "--states=all", f"--user={os.geteuid()}", "--format=%i %k"],
        env=_environment(),
    )
    if listed.returncode:
        raise _failed(listed)
    rows = (line.strip().partition(" ") for line in listed.stdout.splitlines())
    return min((job for job, _, said in rows if said.strip() == comment and job.isdecimal()), key=int, default=None)


def signal(job: str, name: str) -> bool:
    """Send a signal to the batch script of a job; whether there is one.

    :raises TransientError: The controller did not answer.
    """
    return _cancel([f"--signal={name}", "--batch", job])


def cancel(job: str) -> bool:
    """End a job: Slurm asks its processes with SIGTERM, and kills them after its ``KillWait``; whether there is one.

    :raises TransientError: The controller did not answer.
    """
    return _cancel([job])


def _cancel(arguments: Sequence[str]) -> bool:
    done = _run(["scancel", *arguments], env=_environment())
    if _UNKNOWN.search(done.stderr):
        return False
    if done.returncode:
        raise _failed(done)
    return True


def _run(command: Sequence[str], *, env: Mapping[str, str], stdin: str = "") -> "subprocess.CompletedProcess[str]":
    program = shutil.which(command[0])
    if program is None:
        raise FatalError(
            f"there is no program {command[0]} here",
            hint="run hostcore on a machine that may submit to Slurm, a login node; or `module load slurm` first",
        )
    try:
        return subprocess.run(
            [program, *command[1:]],
            input=stdin,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=_SECONDS,
            env=dict(env),
            start_new_session=True,  # Ctrl-C is for this process alone
        )
    except subprocess.TimeoutExpired as error:
        raise TransientError(f"{command[0]} did not come back within {_SECONDS:g} s") from error
    except OSError as error:
        raise FatalError(f"cannot start {command[0]}: {error}", file=program) from error


def _environment(own: Sequence[str] = ()) -> dict[str, str]:
    """The environment of this process, without what would change what is asked.

    :param own: Names of sbatch's options whose variables are left out.
    """
    variables = {f"SBATCH_{_SBATCH_VARIABLES.get(name, name.upper().replace('-', '_'))}" for name in own}
    variables |= {"SBATCH_EXPORT", "SBATCH_WAIT", "SBATCH_NO_REQUEUE", "SBATCH_REQUEUE", "SBATCH_ARRAY_INX"}
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_NOT_OURS)
        and name not in variables
        and (not name.startswith("SLURM_") or name in _KEPT_SLURM)
    }


def _options_in(script: str) -> list[str]:
    return re.findall(r"^#SBATCH --([a-z-]+)", script, re.MULTILINE)


def _failed(done: "subprocess.CompletedProcess[str]") -> FatalError | TransientError:
    """Error of a failed command: fatal only where Slurm has refused, else transient."""
    program = Path(done.args[0]).name
    if done.returncode < 0:
        return TransientError(f"{program} was ended by signal {-done.returncode}")
    said = (done.stderr or done.stdout).encode(errors="surrogateescape").decode(errors="replace")
    lines = [line.removeprefix(f"{program}: ").removeprefix("error: ").strip() for line in said.splitlines()]
    text = "; ".join(dict.fromkeys(line for line in lines if line)) or f"it ended with {done.returncode}"
    if _TRANSIENT.search(said) or (program != "sbatch" and not _DENIED.search(said)):
        return TransientError(f"{program}: {text}")
    about = next((one for one in _REFUSALS if re.search(one[0], text, re.IGNORECASE)), None)
    _, pointer, hint = about if about and program == "sbatch" else (None, None, None)
    return FatalError(f"{program} refused: {text}", pointer=pointer, hint=hint)
