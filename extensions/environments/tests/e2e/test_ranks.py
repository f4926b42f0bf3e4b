"""Runs on several ranks that an engine has started, whose workers have an environment of their own."""

import json
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import COMMAND, Said, said_by
from ports import free_ports

TRAINER = "of-its-own"
JOB = {"environment": {"requirements": [TRAINER]}, "trainer": TRAINER, "device": "cpu"}

#: ``start(job, changes of each rank's environment)``: both ranks, as an engine on two machines would start them.
Start = Callable[..., list[Said]]


@pytest.fixture
def published(workplace: Any) -> Any:
    """An index with the trainer in two versions, which is installed nowhere."""
    for version, step in (("1.0", 1), ("2.0", 100)):
        workplace.index.publish(TRAINER, version=version, trainer=TRAINER, step=step)
    return workplace


@pytest.fixture
def both(published: Any) -> Start:
    """Starts two ranks on two machines, as far as they can tell: each has environments of its own."""

    def start(job: Path, *changes: dict[str, str], apart: bool = False) -> list[Said]:
        port = free_ports(9)
        processes = []
        for rank, own in enumerate(changes):
            place = published.path / f"machine {rank}"
            place.mkdir(exist_ok=True)
            runs = place if apart else published.path
            engine = {
                "RANK": str(rank),
                "LOCAL_RANK": "0",
                "WORLD_SIZE": "2",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "HOSTCORE_RUNS_DIR": str(runs / "runs"),
                "HOSTCORE_ENVIRONMENTS_DIR": str(place / "environments"),
            }
            processes.append(
                subprocess.Popen(
                    [COMMAND, "run", str(job)],
                    cwd=place,
                    env={**published.environment, **engine, **own},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return [said_by(one) for one in processes]

    return start


@pytest.fixture
def only_the_old(published: Any) -> dict[str, str]:
    """The environment of a machine whose user wants the older trainer."""
    (published.path / "constraint.txt").write_text(f"{TRAINER}==1.0\n")
    return {"UV_CONSTRAINT": str(published.path / "constraint.txt")}


@pytest.fixture
def bucket() -> Iterator[dict[str, str]]:
    """How the bucket of that name is found: where machines that share no folder keep checkpoints."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    own = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    client.create_bucket(Bucket="bucket")
    yield {**own, "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_EC2_METADATA_DISABLED": "true"}
    server.stop()


def python_of(run: Path, rank: int) -> Path:
    """The Python that the worker of a rank has printed."""
    return Path((run / "logs" / f"rank-{rank}.attempt-1.log").read_text().splitlines()[0])


def versions_in(python: Path) -> list[str]:
    """The versions of the trainer in the environment of a Python."""
    return [one.name for one in python.parents[1].glob("lib/python*/site-packages/of_its_own-*")]


def test_another_machine_builds_what_rank_0_has_resolved(published: Any, both: Start, only_the_old: Any) -> None:
    done = both(published.job(**JOB, run_id="both"), only_the_old, {})
    assert [one.code for one in done] == [0, 0], done
    run = published.run_directory("both")
    for rank in range(2):
        assert python_of(run, rank).is_relative_to(published.path / f"machine {rank}" / "environments")
        assert versions_in(python_of(run, rank)) == ["of_its_own-1.0.dist-info"]
        assert done[rank].err.count("environment: building it") == 1
    contract = json.loads((run / "config" / "contract.attempt-1.rank-1.json").read_text())
    assert contract["python"] == str(python_of(run, 1))


def test_so_does_one_that_does_not_see_the_run(published: Any, both: Start, only_the_old: Any, bucket: Any) -> None:
    around = {"HOSTCORE_RANKS_SECRET": "the ranks of this test alone", **bucket}
    job = published.job(**JOB, run_id="both", checkpoint_base_uri="s3://bucket/runs")
    done = both(job, {**around, **only_the_old}, around, apart=True)
    assert [one.code for one in done] == [0, 0], done
    python = python_of(published.path / "machine 0" / "runs" / "both", 1)
    assert python.is_relative_to(published.path / "machine 1" / "environments")
    assert versions_in(python) == ["of_its_own-1.0.dist-info"]


def test_an_interpreter_that_another_machine_has_not_is_one_error(published: Any, both: Start) -> None:
    (published.path / "machine 0").mkdir()
    python = published.path / "machine 0" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    with zipfile.ZipFile(published.index.publish(TRAINER, version="3.0")) as wheel:
        wheel.extract("of_its_own.py", published.path)
    own = {"trainer": "of_its_own:Trainer", "environment": {"interpreter": "/proc/self/cwd/python"}}
    done = both(published.job(**{**JOB, **own}, run_id="both"), {}, {})
    assert [one.code for one in done] == [2, 2], done
    assert done[0].err.count("error: ") == 1
    assert f"on {socket.gethostname()}: /proc/self/cwd/python cannot be started: No such file" in done[0].err
    assert "at: /environment/interpreter" in done[0].err
    assert not published.run_directory("both").exists()


def test_what_cannot_be_built_there_is_told_as_the_end_of_the_run(published: Any) -> None:
    own = {"environment": {"requirements": ["nowhere"]}, "launcher": "torchrun", "resources": {"num_nodes": 1}}
    done = published.hostcore("run", published.job(**{**JOB, **own}, run_id="both"))
    assert done.code == 1, done.err
    assert published.document("both", "result.json")["status"] == "failed"
    assert done.err.count("error: ") == 1
    assert "error: EnvironmentFailed: No solution found" in done.err
    assert "nowhere was not found" in done.err
