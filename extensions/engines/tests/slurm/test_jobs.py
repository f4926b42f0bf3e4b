"""What Slurm does with jobs, and what the launcher makes of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore_engines.slurm import commands
from hostcore_engines.slurm.launcher import SlurmLauncher
from hostcore_hookspecs import FatalError, Job, LaunchContext, LaunchHandle, Resources

Settings = SlurmLauncher.Settings


@pytest.fixture
def context(slurm: Any, tmp_path: Path) -> Callable[..., LaunchContext]:
    """A launch of a program that notes each of its starts in the file ``starts``, and succeeds."""
    run_dir = tmp_path / "run"
    program = (
        "import json, os, sys; os.chdir(sys.argv[1]); open('../starts', 'a').write(os.environ['SLURM_JOB_ID'] + '\\n');"
        'open("result.json", "w").write(json.dumps({"status": "succeeded", "exit_code": 0}))'
    )

    def make(**changes: Any) -> LaunchContext:
        command = changes.pop("command", [sys.executable, "-c", program, str(run_dir)])
        return LaunchContext(
            job=Job(resources=Resources(**changes)),
            job_path="",
            run_dir=str(run_dir),
            command=command,
            env={},
            log=lambda line: None,
            launch_id=f"{tmp_path.name}.1",
            name="run",
        )

    return make


def jobs(slurm: Any) -> list[str]:
    return slurm.ask("squeue", "--noheader", "--states=all", "--format=%i").split()


def ended(handle: LaunchHandle, until: Callable) -> str:
    def over() -> str:
        status = SlurmLauncher().poll(handle).status
        return "" if status in ("submitted", "running") else status

    return until(over, "its end")


def test_a_launch_that_is_tried_again_is_the_job_that_there_is(
    slurm: Any, context: Callable, until: Callable, tmp_path: Path
) -> None:
    before = set(jobs(slurm))
    first = SlurmLauncher().launch(context())
    again = SlurmLauncher().launch(context())
    assert ended(first, until) == "succeeded"
    after_its_end = SlurmLauncher().launch(context())
    assert first == again == after_its_end
    assert SlurmLauncher().poll(after_its_end).status == "succeeded"
    assert set(jobs(slurm)) - before == {first.id}  # it forgets old ones at any time
    assert (tmp_path / "starts").read_text().split() == [first.id]


def test_a_launch_whose_first_answer_was_lost_runs_once(
    slurm: Any, context: Callable, until: Callable, tmp_path: Path
) -> None:
    first = SlurmLauncher().launch(context())
    # The controller did not say that it has the first job: the second try submits another.
    script = SlurmLauncher().plan(context()).document
    second = attrs.evolve(first, id=commands.submit(script, ["--output=/dev/null"], {}))
    assert second.id != first.id
    assert (ended(first, until), ended(second, until)) == ("succeeded", "succeeded")
    until(lambda: slurm.state(first.id) == slurm.state(second.id) == "COMPLETED", "the end of both jobs")
    assert len((tmp_path / "starts").read_text().split()) == 1


def test_a_job_that_waits_says_why_and_is_cancelled_at_once(
    slurm: Any, context: Callable, until: Callable, tmp_path: Path
) -> None:
    handle = SlurmLauncher().launch(context(num_nodes=3))
    until(lambda: "PartitionConfig" in SlurmLauncher().poll(handle).message, "the reason")
    assert SlurmLauncher().poll(handle).status == "submitted"
    SlurmLauncher().cancel(handle, 60)
    assert ended(handle, until) == "cancelled"
    # A job that was submitted for this launch without anybody's knowledge does not start any more, either.
    script = SlurmLauncher().plan(context()).document
    unknown = commands.submit(script, ["--output=/dev/null"], {})
    until(lambda: slurm.state(unknown) == "COMPLETED", "its end")
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
    context: Callable, settings: dict[str, Any], resources: dict[str, Any], words: str, pointer: str
) -> None:
    with pytest.raises(FatalError, match=words) as caught:
        SlurmLauncher(settings=Settings(**settings)).launch(context(**resources))
    assert caught.value.pointer == pointer


def test_a_line_of_before_that_fails_ends_the_job(context: Callable, until: Callable, tmp_path: Path) -> None:
    handle = SlurmLauncher(settings=Settings(before=("false", "touch never"))).launch(context())
    assert ended(handle, until) == "failed"
    assert not (tmp_path / "starts").exists()


def test_the_end_is_known_after_slurm_has_forgotten_the_job(
    slurm: Any, context: Callable, until: Callable, tmp_path: Path
) -> None:
    succeeded = SlurmLauncher().launch(context())
    other = attrs.evolve(
        context(command=["/bin/sh", "-c", "exit 7"]), launch_id=f"{tmp_path.name}.2", run_dir=str(tmp_path / "o")
    )
    failed = SlurmLauncher().launch(other)
    assert (ended(succeeded, until), ended(failed, until)) == ("succeeded", "failed")
    with slurm.forgetting():
        until(lambda: not {succeeded.id, failed.id} & set(jobs(slurm)), "the controller to forget them")
    assert SlurmLauncher().poll(succeeded).status == "succeeded"
    assert (SlurmLauncher().poll(failed).status, SlurmLauncher().poll(failed).exit_code) == ("failed", 7)
    SlurmLauncher().cancel(failed, 0)
    (tmp_path / "o" / "config" / f"slurm.{failed.id}.end").unlink()
    assert SlurmLauncher().poll(failed).status == "lost"
