"""Whole runs on a real Slurm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hostcore_engines.slurm.launcher import SlurmLauncher

SLOW = {"trainer": "small_trainer:Slow", "max_steps": 10**6}
TWO_NODES = {"trainer": "pair_trainer:Trainer", "resources": {"num_nodes": 2}}


def start_again_now(slurm: Any, run: Any, until: Callable) -> None:
    """Slurm waits two minutes before it starts a requeued job; an operator does not.

    A second is needed: a node does not start a job again in the same one in which it has ended it.
    """
    until(lambda: "waits: BeginTime" in run.poll().message, "the job to be back in the queue")
    assert run.poll().status == "submitted"
    slurm.ask("scontrol", "update", f"JobId={run.job}", "StartTime=now+2")


def test_a_run_on_one_node_succeeds(slurm: Any, folder: Any) -> None:
    run = folder.submit("one", launcher={"time_limit": 10, "before": ["export GREETING=hello"]})
    status = run.until("succeeded")
    assert (status.exit_code, run.result["step"]) == (0, 10)
    assert "succeeded  one" in run.log()
    assert "Requeue=1" in slurm.ask("scontrol", "show", "job", run.job)


def test_two_nodes_train_as_the_ranks_of_one_run(folder: Any) -> None:
    run = folder.submit("pair", max_steps=5, **TWO_NODES)
    run.until("succeeded")
    # Each step adds 1 from rank 0 and 2 from rank 1.
    assert run.result["metrics"]["total"] == 15
    assert (run.path / "logs" / "rank-1.attempt-1.log").read_text().startswith("hello from rank 1 of 2")


def test_the_signal_before_the_limit_makes_a_checkpoint_and_the_job_goes_on_from_it(
    slurm: Any, folder: Any, until: Callable
) -> None:
    go_on = folder.path / "limited.go-on"
    run = folder.submit("limited", max_steps=120, hyperparams={"until": str(go_on)}, **TWO_NODES)
    until((folder.path / "limited.rank-0.pid").exists, "the third step")
    # As the controller does when the limit is near.
    slurm.ask("scancel", "--signal=USR1", "--batch", run.job)
    until(lambda: run.events("run_preempted"), "the run to write a checkpoint and end")
    start_again_now(slurm, run, until)
    second = until(lambda: (status := run.poll()).status == "running" and status, "its second start")
    assert "start 2" in second.message, slurm.ask("scontrol", "show", "job", run.job) + run.log() + slurm.logs()
    go_on.touch()
    run.until("succeeded")
    preempted, resumed = run.events("run_preempted")[0], run.events("run_started")[-1]
    assert preempted["reason"] == "received SIGUSR1"
    assert (run.result["attempt"], run.result["step"]) == (2, 120)
    assert resumed["step"] == preempted["step"] > 0
    assert run.result["metrics"]["total"] == 360


def test_a_job_that_slurm_takes_off_its_node_goes_on_from_its_checkpoint(
    slurm: Any, folder: Any, until: Callable
) -> None:
    go_on = folder.path / "displaced.go-on"
    hyperparams = {"until": str(go_on)}
    run = folder.submit("displaced", trainer="small_trainer:Slow", max_steps=500, hyperparams=hyperparams)
    until((folder.path / "displaced.pid").exists, "the third step")
    slurm.ask("scontrol", "requeue", run.job)  # as preemption does
    until(lambda: run.events("run_preempted"), "the run to write a checkpoint and end")
    go_on.touch()
    start_again_now(slurm, run, until)
    run.until("succeeded")
    assert (run.result["attempt"], run.result["step"]) == (2, 500)
    assert run.events("run_started")[-1]["step"] == run.events("run_preempted")[0]["step"] >= 3


def test_cancelling_writes_a_checkpoint(folder: Any, until: Callable) -> None:
    run = folder.submit("cancelled", **SLOW)
    until((folder.path / "cancelled.pid").exists, "the third step")
    SlurmLauncher().cancel(run.handle, 300)
    status = run.until("cancelled")
    assert status.exit_code == 130
    assert run.result["final_checkpoint"]
    SlurmLauncher().cancel(run.handle, 300)
    assert run.poll() == status


def test_what_scancel_has_ended_is_cancelled_though_the_run_takes_it_for_a_preemption(
    slurm: Any, folder: Any, until: Callable
) -> None:
    run = folder.submit("scancelled", **SLOW)
    until((folder.path / "scancelled.pid").exists, "the third step")
    slurm.ask("scancel", run.job)
    run.until("cancelled")
    assert run.result["status"] == "preempted"
