"""Ranks on machines that share no folder: they meet by a secret, and a mirror on S3 carries their checkpoints."""

import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
import pytest
from command_line import Said, said_by
from fork_server import hostcore
from ports import free_ports
from waiting import wait_until

SECRET = "a secret of this test alone"
JOB = {
    "trainer": "node_trainer:Trainer",
    "run_id": "a",
    "mock_batches": [1] * 8,
    "epochs": 100,
    "max_steps": 14,
    "metric_every": 1,
    "checkpoint_every": 5,
}
PREFIX = "runs/a/framework=node_trainer-Trainer"


def losses(machine: Any) -> dict[int, float]:
    return dict(machine.metric("a", "train/loss"))


@pytest.fixture(scope="module")
def undisturbed(make_machine: Any) -> Mapping[int, float]:
    """The losses of two ranks of one machine."""
    still = make_machine("still")
    job = still.path / "two_ranks.json"
    job.write_bytes(orjson.dumps({**JOB, "devices": ["cpu", "cpu"], "reporters": []}))
    done = still.hostcore("run", job)
    assert done.code == 0, done.err
    return losses(still)


@pytest.fixture
def start() -> Iterator[Callable[..., list["subprocess.Popen[str]"]]]:
    """``start(machines, **job)``: a rank on each machine, as torchrun's agents start them."""
    started: list[subprocess.Popen[str]] = []

    def make(machines: list[Any], *, secret: str = SECRET, hold_at: int = 0, **job: Any) -> Any:
        port = str(free_ports(9))  # the engine's, and those behind it where rank 0 listens
        for rank, machine in enumerate(machines):
            machine.job(**{**JOB, **job})
            place = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(len(machines)), "LOCAL_WORLD_SIZE": "1"}
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "HOSTCORE_RANKS_SECRET": secret}
            started.append(
                hostcore(
                    ["run", "job.json"],
                    cwd=machine.path,
                    env={**machine.environment, **place, **meeting, "HOLD_AT": str(hold_at)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return started[-len(machines) :]

    yield make
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def finish(processes: list["subprocess.Popen[str]"]) -> list[Said]:
    return [said_by(process) for process in processes]


def power_off(process: "subprocess.Popen[str]", machine: Any, rank: int) -> None:
    """End the supervisor and the worker of a rank at once."""
    for pid in (process.pid, int((machine.path / f"held.{rank}").read_text())):
        os.kill(pid, signal.SIGKILL)
    process.communicate()


def test_a_run_goes_on_from_its_mirror_when_all_machines_are_lost(
    machine: Any, s3: Any, start: Callable, undisturbed: Mapping[int, float]
) -> None:
    before = [machine("first-0"), machine("first-1")]
    processes = start(before, hold_at=12, checkpoint_base_uri=s3.uri("runs"))
    held = [one.path / f"held.{rank}" for rank, one in enumerate(before)]
    wait_until(lambda: all(path.exists() and path.read_text() for path in held), "both ranks in step 12")
    wait_until(lambda: f"{PREFIX}/checkpoints/step-000010.json" in s3.keys(PREFIX), "the checkpoint in the mirror")
    assert not (before[1].path / "runs" / "a").exists(), "no run can be mistaken for one on the machine of rank 1"
    for rank, (process, one) in enumerate(zip(processes, before, strict=True)):
        power_off(process, one, rank)
    for one in before:
        shutil.rmtree(one.path)

    after = [machine("second-0"), machine("second-1")]
    done = finish(start(after, checkpoint_base_uri=s3.uri("runs")))
    assert [one.code for one in done] == [0, 0], [one.err for one in done]
    assert [event["step"] for event in after[0].events("a") if event["event"] == "run_resumed"] == [10]
    assert losses(after[0]) == {step: loss for step, loss in undisturbed.items() if step in losses(after[0])}
    assert set(losses(after[0])) >= set(range(11, 15))
    assert not list((after[1].path / "runs").rglob("*")), "nothing stays on the machine of rank 1"

    logs = after[0].run("a") / "logs"
    files = ["rank 0 at step 10", "rank 1 at step 10"]
    for rank in range(2):
        assert f"rank {rank} has found {files} in " in (logs / f"rank-{rank}.attempt-2.log").read_text()
    same = after[0].run("a") / "checkpoints" / "step-000014" / "trainer" / "same.txt"
    assert same.read_text() == "written by rank 0"
    verified = after[0].hostcore("verify", "a")
    assert verified.code == 0, verified.out
    for key in (key for key in s3.keys(f"{PREFIX}/checkpoints") if key.count("/") == PREFIX.count("/") + 2):
        for file in orjson.loads(s3.get(key))["files"]:
            content = s3.get(f"{key.removesuffix('.json')}/{file['path']}")
            assert hashlib.sha256(content).hexdigest() == file["sha256"], (key, file["path"])


def test_the_logs_and_the_parts_of_a_state_of_all_machines_come_to_the_first(
    machine: Any, s3: Any, start: Callable
) -> None:
    s3.put("word.txt", b"hello")
    common = {"hyperparams": {"strategy": "fsdp2"}, "inputs": {"word": s3.uri("word.txt")}}
    for attempt, (names, steps) in enumerate([("ab", 4), ("cd", 8)], start=1):
        machines = [machine(name) for name in names]
        done = finish(start(machines, **common, max_steps=steps, checkpoint_base_uri=s3.uri("runs")))
        assert [one.code for one in done] == [0, 0], [one.err for one in done]
        assert machines[0].hostcore("verify", "a").code == 0
        assert attempt == max(event["attempt"] for event in machines[0].events("a"))
    first = machines[0].run("a")
    assert len(list((first / "checkpoints" / "step-000008" / "state.shards").glob("*.safetensors"))) == 2
    for rank, one in enumerate(machines):
        log = (first / "logs" / f"rank-{rank}.attempt-2.log").read_text()
        assert f"word is 'hello', in {one.path}" in log, "each machine has fetched it for itself"
    warnings = [event for event in machines[0].events("a") if event["event"] == "warning"]
    assert [one["src"][:2] for one in warnings if one["message"].startswith("rank 1 has something")] == [[1, 1]]
    assert losses(machines[0]).keys() == set(range(1, 9))
    output = s3.get(f"{PREFIX}/logs/rank-1.attempt-1.log").decode()
    assert output.count("rank 1 is at step 3") == 1


def test_what_a_checkpoint_cannot_hold_on_another_machine_fails_the_run_on_all(
    machine: Any, s3: Any, start: Callable
) -> None:
    machines = [machine("a"), machine("b")]
    done = finish(start(machines, hyperparams={"links": True}, checkpoint_base_uri=s3.uri("runs")))
    assert [one.code for one in done] == [1, 1]
    assert "rank 1: a checkpoint cannot hold 'trainer/ranks/link'" in done[0].err
    assert not list((machines[0].run("a") / "checkpoints").iterdir())


def test_the_loss_of_one_machine_is_how_the_run_has_failed(machine: Any, s3: Any, start: Callable) -> None:
    machines = [machine("a"), machine("b")]
    processes = start(machines, hold_at=7, checkpoint_base_uri=s3.uri("runs"))
    held = [one.path / f"held.{rank}" for rank, one in enumerate(machines)]
    wait_until(lambda: all(path.exists() and path.read_text() for path in held), "both ranks in step 7")
    power_off(processes[1], machines[1], 1)
    said = said_by(processes[0])
    assert said.code == 1
    result = orjson.loads((machines[0].run("a") / "result.json").read_bytes())
    assert (result["status"], result["error"]["rank"]) == ("failed", 1)
    assert "was lost with the supervisor that watched it there" in result["error"]["message"]
    assert f"{PREFIX}/result.json" in s3.keys(PREFIX)


@pytest.mark.parametrize("where", [{}, {"checkpoint_base_uri": "file:///srv/m"}])
def test_without_a_store_that_all_machines_reach_nothing_is_started(
    make_machine: Any, start: Callable, where: dict[str, str]
) -> None:
    machines = [make_machine("a"), make_machine("b")]
    done = finish(start(machines, **where))
    assert [one.code for one in done] == [2, 2], [one.err for one in done]
    assert "the machines do not share the folder of the runs" in done[0].err
    assert "volume" in done[0].err
    assert "s3://bucket/runs" in done[0].err
    assert not (machines[0].path / "runs" / "a").exists()
