"""The batch script of the launcher ``slurm``, run by a real bash.

Slurm's own commands are played, since they take a cluster: extensions/engines/tests/slurm has a real one.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from engine_runs import launch_context

from hostcore_engines.slurm.launcher import SlurmLauncher
from hostcore_hookspecs import LaunchContext

Settings = SlurmLauncher.Settings
GOLDEN = Path(__file__).with_name("slurm_two_nodes.sh")

HOSTILE = [
    "two words",
    "",
    "it's",
    'say "no"',
    "$(exit 3) `exit 3`",
    "$HOME $$ ${local_rank} $",
    "a\nb",
    "*",
    "\\n",
    "ü🚀",
    "&",
]

#: Starts the step as the first node.
SRUN = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
SLURM_NODEID=0 exec "$@"
"""
#: Notes what it is asked, and knows the nodes.
SCONTROL = """#!/bin/bash
echo "$*" >>"$ASKED"
case "$1 $2" in
  "show hostnames") printf 'node1\\nnode2\\n' ;;
  "show node") echo "NodeName=$4 Arch=x86_64 NodeAddr=10.0.0.${4#node} NodeHostName=$4 Port=6818" ;;
esac
"""
#: A run: notes its arguments, and ends as it is told, or by a signal.
RUN = """
import json, os, pathlib, signal, string, sys, time
here = pathlib.Path(os.environ["HERE"])
if sys.argv[1:3] == ["-I", "-c"]:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
if "torch.distributed.run" in sys.argv:  # an agent, which makes one $ of two
    (here / "agent").write_text(json.dumps(sys.argv[1:]))
    rank = sys.argv[sys.argv.index("--no-python") + 1:]
    rank = [string.Template(one).safe_substitute(local_rank="0") for one in rank]
    os.environ["LOCAL_RANK"] = "0"
    code = os.spawnvp(os.P_WAIT, rank[0], rank)
    sys.exit(1 if code else 0)
def stop(number, frame):
    end({signal.SIGINT: 130}.get(number, 75), signal.Signals(number).name)
def end(code, reason=""):
    part = here / "run" / "result.part"
    part.write_text(json.dumps({"status": "x", "exit_code": code, "reason": reason}))
    part.rename(here / "run" / "result.json")
    os._exit(code)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, stop)
(here / "arguments.part").write_text(json.dumps([os.fsencode(one).hex() for one in sys.argv[1:]]))
(here / "arguments.part").rename(here / "arguments")
if os.environ.get("STAYS"):
    while True:
        time.sleep(1)
end(int(os.environ.get("CODE", "0")))
"""


@attrs.frozen
class Stage:
    """A folder with the commands and the run."""

    path: Path

    @property
    def run_dir(self) -> Path:
        return self.path / "run"

    def context(self, *arguments: str, **resources: Any) -> LaunchContext:
        command = [str(self.path / "python"), *arguments]
        return launch_context(self.run_dir, command, launch_id="a.1", name="a", resources=resources)

    def start(
        self, context: LaunchContext, settings: Settings | None = None, *, job: str = "17", **environment: str
    ) -> subprocess.Popen[str]:
        script = SlurmLauncher(settings=settings).plan(context).document
        own = {
            "HERE": str(self.path),
            "ASKED": str(self.path / "asked"),
            "PATH": f"{self.path}:{os.environ['PATH']}",
            "SLURM_JOB_ID": job,
            "SLURM_JOB_NUM_NODES": str(context.job.resources.num_nodes),
            "SLURM_JOB_NODELIST": "node[1-2]",
            "SLURMD_NODENAME": "node1",
        }
        return subprocess.Popen(
            ["bash", "-c", script],
            env={**os.environ, **own, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *given: Any, **more: Any) -> tuple[int, str]:
        """The exit code of the script, and what it has printed."""
        process = self.start(*given, **more)
        said, _ = process.communicate(timeout=300)
        return process.returncode, said

    def signalled(self, number: signal.Signals, *given: Any, **more: Any) -> int:
        """The exit code of a script that gets a signal while the run runs."""
        process = self.start(*given, **more, STAYS="yes")
        due = time.monotonic() + 300
        while not (self.path / "arguments").exists():
            assert time.monotonic() < due
            assert process.poll() is None, process.communicate()[0] + self.log()
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate(timeout=300)
        return process.returncode

    def log(self) -> str:
        file = self.run_dir / "logs" / "slurm-17.out"
        return file.read_text() if file.exists() else ""

    @property
    def arguments(self) -> list[str]:
        return [os.fsdecode(bytes.fromhex(one)) for one in json.loads((self.path / "arguments").read_text())]

    @property
    def asked(self) -> list[str]:
        file = self.path / "asked"
        return file.read_text().splitlines() if file.exists() else []

    def note(self, name: str) -> str | None:
        file = self.run_dir / "config" / f"slurm.{name}"
        return file.read_text().strip() if file.exists() else None


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path / "it's $HOME; ü")
    for folder in ("config", "logs"):
        (made.run_dir / folder).mkdir(parents=True)
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("python", f"#!{sys.executable}\n{RUN}")):
        file = made.path / name
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return made


@pytest.mark.parametrize("nodes", [1, 2])
def test_arguments_arrive_byte_for_byte(stage: Stage, nodes: int) -> None:
    code, said = stage.run(stage.context(*HOSTILE, num_nodes=nodes))
    assert (code, stage.note("17.end")) == (0, "0"), said + stage.log()
    assert stage.arguments == HOSTILE


def test_the_agents_meet_on_the_first_node_under_slurms_own_addresses(stage: Stage) -> None:
    stage.run(stage.context(num_nodes=2, gpus_per_node=4), job="123456", SLURM_RESTART_COUNT="2")
    agent = json.loads((stage.path / "agent").read_text())
    assert agent[: agent.index("--no-python")] == [
        *("-P", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=4", "--max-restarts=0"),
        *("--rdzv-backend=c10d", "--rdzv-id=123456.2", "--rdzv-endpoint=10.0.0.1:23456"),
        *("--rdzv-conf=is_host=1", "--local-addr=10.0.0.1"),
    ]


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("code", [0, 1, 75, 130])
def test_the_exit_code_is_that_of_the_run_though_torchrun_hides_it(stage: Stage, nodes: int, code: int) -> None:
    assert stage.run(stage.context(num_nodes=nodes), CODE=str(code))[0] == code
    assert stage.note("17.end") == str(code)
    assert not [asked for asked in stage.asked if asked.startswith("requeue")], "nobody has warned it of a limit"


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_run_that_was_warned_of_the_limit_goes_back_into_the_queue(stage: Stage, nodes: int) -> None:
    assert stage.signalled(signal.SIGUSR1, stage.context(num_nodes=nodes)) == 75
    assert stage.asked[-1] == "requeue 17"
    assert '"SIGUSR1"' in (stage.run_dir / "result.json").read_text()
    assert stage.note("17.end") is None, "it is not over"


@pytest.mark.parametrize(
    ("number", "requeue", "code"),
    [(signal.SIGUSR1, False, 75), (signal.SIGTERM, True, 75), (signal.SIGINT, True, 130)],
)
def test_nothing_else_goes_back_into_the_queue(stage: Stage, number: signal.Signals, requeue: bool, code: int) -> None:
    assert stage.signalled(number, stage.context(), Settings(requeue=requeue)) == code
    assert stage.asked == []
    assert stage.note("17.end") == str(code)


def test_the_first_job_of_a_launch_runs_it_and_another_one_does_not(stage: Stage) -> None:
    stage.run(stage.context(), job="17")
    (stage.path / "arguments").unlink()
    code, said = stage.run(stage.context(), job="18")
    assert (code, said) == (0, "hostcore: this launch was taken before: 17\n")
    assert not (stage.path / "arguments").exists()
    assert stage.note("18.end") is None


def test_a_job_that_was_requeued_runs_again(stage: Stage) -> None:
    stage.run(stage.context(), CODE="1")
    (stage.path / "arguments").unlink()
    code, _ = stage.run(stage.context(), SLURM_RESTART_COUNT="1")
    assert (code, stage.note("17.end")) == (0, "0")
    assert (stage.path / "arguments").exists()


def test_a_node_that_does_not_see_the_run_directory_says_so(stage: Stage) -> None:
    elsewhere = attrs.evolve(stage.context(), run_dir="/not/here")
    code, said = stage.run(elsewhere)
    assert code == 72
    assert said == "hostcore: node1 does not see the run directory /not/here\n"


def test_the_lines_of_before_set_up_the_job_and_the_first_that_fails_ends_it(stage: Stage) -> None:
    assert stage.run(stage.context(), Settings(before=("export CODE=3", "true")))[0] == 3
    (stage.path / "arguments").unlink()
    assert stage.run(stage.context(), Settings(before=("(exit 4)", "touch never")))[0] == 4
    assert stage.note("17.end") == "4"
    assert not (stage.path / "arguments").exists()


def test_a_path_that_slurm_cannot_be_told_gets_its_output_from_the_script(stage: Stage) -> None:
    odd = stage.path / "back\\slash"
    for folder in ("config", "logs"):
        (odd / folder).mkdir(parents=True)
    code, said = stage.run(attrs.evolve(stage.context(), run_dir=str(odd)), Settings(before=("echo hello",)))
    assert (code, said) == (0, "")
    assert (odd / "logs" / "slurm-17.out").read_text() == "hello\n"


def test_the_script_of_a_whole_job() -> None:
    settings = Settings(
        partition="gpu",
        qos="high",
        constraint="a100|h100",
        time_limit="1-12:00:00",
        signal_seconds=300,
        gpu_type="a100",
        options=("--exclusive", "--mail-type=FAIL"),
        before=("module load cuda",),
    )
    resources = {
        "num_nodes": 2,
        "gpus_per_node": 8,
        "cpus_per_node": 95.5,
        "memory_per_node_gb": 64,
        "namespace": "physics",
        "env": {"KEY": "secret"},
    }
    context = launch_context(
        "/shared/my runs/demo",
        ["/opt/python", "-P", "-m", "hostcore", "resume", "/shared/my runs/demo", "--launched"],
        resources=resources,
        env=resources["env"],
        document={"max_restarts": 2},
        launch_id="demo.1f",
        name="demo",
    )
    plan = SlurmLauncher(settings=settings).plan(context)
    assert plan.summary == "Slurm job demo in partition gpu, 2 nodes with 8 GPUs, for 1-12:00:00 at a time"
    assert plan.document == GOLDEN.read_text()
    assert "secret" not in plan.document
    assert subprocess.run(["bash", "-n", str(GOLDEN)], check=False).returncode == 0


@pytest.mark.parametrize("launch_id", ["a b", "x" * 200, "$(touch never)", "../../x", "-e"])
def test_an_odd_launch_id_is_one_plain_word(stage: Stage, launch_id: str) -> None:
    script = SlurmLauncher().plan(attrs.evolve(stage.context(), launch_id=launch_id)).document
    (comment,) = [line for line in script.splitlines() if line.startswith("#SBATCH --comment=")]
    word = comment.partition("hostcore:")[2]
    assert len(word) == 40
    assert word.isalnum()
    assert f"launch={word}\n" in script
