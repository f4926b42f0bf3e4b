"""Runs and launches on a real Slurm of two nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import slurm_cluster
from curve_trainer import curve
from engine_contract import EngineContract
from engine_runs import OVER, Engine, EngineRun, launch_context
from waiting import wait_until

from hostcore_engines.slurm import commands
from hostcore_engines.slurm.launcher import SlurmLauncher
from hostcore_hookspecs import FatalError, LaunchContext, LaunchHandle

Settings = SlurmLauncher.Settings


@pytest.fixture(scope="module")
def slurm() -> Iterator[Any]:
    """The cluster; this process asks it, too."""
    if slurm_cluster.MISSING:
        pytest.skip(slurm_cluster.MISSING)
    with slurm_cluster.cluster() as one, pytest.MonkeyPatch.context() as patch:
        for name in ("SLURM_CONF", "PATH"):
            patch.setenv(name, one.environment[name])
        yield one


@pytest.fixture(scope="module")
def engine(slurm: Any, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(path=tmp_path_factory.mktemp("user's folder"), launcher=SlurmLauncher(), section={"use": "slurm"})


class TestEveryRun(EngineContract):
    pass


def start_again_now(slurm: Any, run: EngineRun) -> None:
    """Slurm waits two minutes before it starts a requeued job; an operator does not.

    A second is needed: a node does not start a job again in the same one in which it has ended it.
    """
    wait_until(lambda: run.events("run_preempted"), "the run to write a checkpoint and end")
    wait_until(
        lambda: "waits: BeginTime" in run.poll().message or len(run.events("run_started")) > 1,
        "the job to be back in the queue",
    )
    if run.poll().status == "submitted":
        slurm.ask("scontrol", "update", f"JobId={run.handle.id}", "StartTime=now+2")


def test_the_signal_before_the_limit_makes_a_checkpoint_and_the_job_goes_on_from_it(slurm: Any, engine: Engine) -> None:
    go_on = engine.path / "limited.go-on"
    two_nodes = {"resources": {"num_nodes": 2}, "global_batch_size": 2}
    run = engine.submit("limited", max_steps=120, hyperparams={"until": str(go_on)}, **two_nodes)
    run.trains()
    # As the controller does when the limit is near.
    slurm.ask("scancel", "--signal=USR1", "--batch", run.handle.id)
    start_again_now(slurm, run)
    second = wait_until(lambda: (status := run.poll()).status == "running" and status, "its second start")
    assert "start 2" in second.message, slurm.ask("scontrol", "show", "job", run.handle.id) + run.log + slurm.logs()
    go_on.touch()
    run.until("succeeded")
    preempted, resumed = run.events("run_preempted")[0], run.events("run_started")[-1]
    assert preempted["reason"] == "received SIGUSR1"
    assert (run.result["attempt"], run.result["step"]) == (2, 120)
    assert resumed["step"] == preempted["step"] > 0
    assert list((run.losses(1) | run.losses(2)).values()) == pytest.approx(curve(120))


def test_a_job_that_slurm_takes_off_its_node_goes_on_from_its_checkpoint(slurm: Any, engine: Engine) -> None:
    go_on = engine.path / "displaced.go-on"
    run = engine.submit("displaced", max_steps=100, hyperparams={"until": str(go_on)})
    run.trains()
    slurm.ask("scontrol", "requeue", run.handle.id)  # as preemption does
    start_again_now(slurm, run)
    go_on.touch()
    assert run.until("succeeded").exit_code == 0
    assert (run.result["attempt"], run.result["step"]) == (2, 100)
    assert run.events("run_started")[-1]["step"] == run.events("run_preempted")[0]["step"] >= 1


def test_what_scancel_has_ended_is_cancelled_though_the_run_takes_it_for_a_preemption(
    slurm: Any, engine: Engine
) -> None:
    run = engine.submit("scancelled", max_steps=10**6, hyperparams={"seconds": 0.02})
    run.trains()
    slurm.ask("scancel", run.handle.id)
    run.until("cancelled")
    assert run.result["status"] == "preempted"


@pytest.fixture
def context(slurm: Any, tmp_path: Path) -> Callable[..., LaunchContext]:
    """A launch of a program that notes each of its starts in the file ``starts``, and succeeds."""
    program = (
        "import json, os, sys; os.chdir(sys.argv[1]); open('../starts', 'a').write(os.environ['SLURM_JOB_ID'] + '\\n');"
        'open("result.json", "w").write(json.dumps({"status": "succeeded", "exit_code": 0}))'
    )

    def make(run_dir: Path = tmp_path / "run", **resources: Any) -> LaunchContext:
        command = [sys.executable, "-c", program, str(run_dir)]
        return launch_context(run_dir, command, run_id=f"{tmp_path.name}.{run_dir.name}", resources=resources)

    return make


def jobs(slurm: Any) -> list[str]:
    return list(slurm.ask("squeue", "--noheader", "--states=all", "--format=%i").split())


def ended(handle: LaunchHandle) -> str:
    return str(wait_until(lambda: (status := SlurmLauncher().poll(handle).status) in OVER and status, "its end"))


def submitted_unknown(slurm: Any, context: LaunchContext) -> str:
    """A job of a launch whose submission was not answered; it has ended."""
    job = commands.submit(SlurmLauncher().plan(context).document, ["--output=/dev/null"], {})
    wait_until(lambda: slurm.state(job) == "COMPLETED", "its end")
    return job


def test_a_launch_that_is_tried_again_runs_once_also_when_the_first_answer_was_lost(
    slurm: Any, context: Callable[..., LaunchContext], tmp_path: Path
) -> None:
    before = set(jobs(slurm))
    first = SlurmLauncher().launch(context())
    assert SlurmLauncher().launch(context()) == first
    assert ended(first) == "succeeded"
    assert SlurmLauncher().launch(context()) == first, "also after its end"
    # The controller did not say that it has the first job: the second try submits another.
    second = attrs.evolve(first, id=submitted_unknown(slurm, context()))
    assert ended(second) == "succeeded"
    assert set(jobs(slurm)) - before <= {first.id, second.id}  # it forgets old ones at any time
    assert len((tmp_path / "starts").read_text().split()) == 1


def test_a_job_that_waits_says_why_and_is_cancelled_at_once(
    slurm: Any, context: Callable[..., LaunchContext], tmp_path: Path
) -> None:
    handle = SlurmLauncher().launch(context(num_nodes=3))
    wait_until(lambda: "PartitionConfig" in SlurmLauncher().poll(handle).message, "the reason")
    assert SlurmLauncher().poll(handle).status == "submitted"
    SlurmLauncher().cancel(handle, 60)
    assert ended(handle) == "cancelled"
    # A job that was submitted for this launch without anybody's knowledge does not start any more, either.
    submitted_unknown(slurm, context())
    assert not (tmp_path / "starts").exists()


@pytest.mark.parametrize(
    ("settings", "resources", "words", "pointer"),
    [
        ({"partition": "nope"}, {}, "invalid partition specified: nope", "/launcher/partition"),
        ({"constraint": "a100"}, {}, "Invalid feature specification", "/launcher/constraint"),
        ({"options": ("--nonsense=1",)}, {}, "unrecognized option '--nonsense=1'", "/launcher/options"),
        ({"gpu_option": "gres"}, {"gpus_per_node": 1}, "Invalid generic resource", "/resources/gpus_per_node"),
        ({}, {"memory_per_node_gb": 1e6}, "Memory specification can not be", "/resources/memory_per_node_gb"),
    ],
)
def test_what_slurm_refuses_is_an_error_in_its_own_words(
    context: Callable[..., LaunchContext], settings: dict[str, Any], resources: dict[str, Any], words: str, pointer: str
) -> None:
    with pytest.raises(FatalError, match=words) as caught:
        SlurmLauncher(settings=Settings(**settings)).launch(context(**resources))
    assert caught.value.pointer == pointer


def test_the_end_is_known_after_slurm_has_forgotten_the_job(
    slurm: Any, context: Callable[..., LaunchContext], tmp_path: Path
) -> None:
    succeeded = SlurmLauncher().launch(context())
    before = Settings(before=("(exit 7)", "touch never"))
    failed = SlurmLauncher(settings=before).launch(context(tmp_path / "other"))
    assert (ended(succeeded), ended(failed)) == ("succeeded", "failed")
    assert len((tmp_path / "starts").read_text().split()) == 1, "a line of before that fails ends the job"
    with slurm.forgetting():
        wait_until(lambda: not {succeeded.id, failed.id} & set(jobs(slurm)), "the controller to forget them")
    assert SlurmLauncher().poll(succeeded).status == "succeeded"
    assert (SlurmLauncher().poll(failed).status, SlurmLauncher().poll(failed).exit_code) == ("failed", 7)
    SlurmLauncher().cancel(failed, 0)
    (tmp_path / "other" / "config" / f"slurm.{failed.id}.end").unlink()
    assert SlurmLauncher().poll(failed).status == "lost"
