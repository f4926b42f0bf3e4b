"""A run in a container that has the name of its machine: its process numbers say nothing outside; it is left alone."""

import os
import subprocess
from collections.abc import Callable, Iterator

import orjson
import pytest
from command_line import COMMAND

#: Such a container, as far as hostcore can see: a PID namespace with a /proc of its own.
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture(scope="module")
def contained(project, until: Callable) -> "Iterator[subprocess.Popen[str]]":
    """A run that trains in a container, for as long as there is no file ``go-on``."""
    if subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system allows no PID namespaces")
    job = project.job("contained.json", run_id="contained", max_steps=20, hyperparams={"until": "go-on"})
    log = project.run("contained").path / "logs" / "events.jsonl"
    command = [*CONTAINER, COMMAND, "run", str(job), "--json"]
    process = subprocess.Popen(command, cwd=project.path, env=project.environment, text=True, stdout=subprocess.PIPE)
    until(lambda: log.exists() and b'"event":"run_started"' in log.read_bytes(), "the run to train")
    yield process
    process.kill()
    process.wait()


def test_is_running_to_those_outside(contained: "subprocess.Popen[str]", project) -> None:
    assert project.command("status", "contained", "--json").json["status"] == "running"
    assert [run["status"] for run in project.command("list", "--json").json["runs"]] == ["running"]


def test_is_not_taken_over_nor_removed_however_old_its_lease_looks(contained: "subprocess.Popen[str]", project) -> None:
    path = project.run("contained").path
    os.utime(path / "lease.json", (0, 0))  # as of a supervisor that was held up
    again, removal = project.start("run", "contained.json"), project.start("rm", "contained", "--yes")
    refused = again.end()
    assert refused.code == 2
    assert "may still run 'contained': its lease is watched for 30 s" in refused.err
    assert "the run 'contained' is running (process " in refused.err
    assert sorted(one.name for one in (path / "attempts").iterdir()) == ["1.json"]
    refused = removal.end()
    assert refused.code == 2
    assert "the run 'contained' is running, and is not removed" in refused.err
    assert path.is_dir()


def test_ends_by_itself_when_it_is_cancelled_from_outside(contained: "subprocess.Popen[str]", project) -> None:
    cancelled = project.command("cancel", "contained", "--json").json
    assert (cancelled["status"], cancelled["attempt"]) == ("cancelled", 1)
    result = orjson.loads(contained.communicate(timeout=600)[0])
    assert (result["status"], result["attempt"], result["reason"]) == ("cancelled", 1, "cancelled by the user")
