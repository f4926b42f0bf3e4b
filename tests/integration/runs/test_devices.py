"""The GPUs of one machine are divided among its runs. The GPUs are pretended: ``nvidia-smi`` is a script."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from command_line import COMMAND

HERE = Path(__file__).parent
#: Trains until it is ended; declares that it can do so on several ranks.
SLOW = {"trainer": "small_trainer:SlowRanks", "device": "auto", "max_steps": 10**6, "metric_every": 1}
BRIEF = {**SLOW, "max_steps": 2}


@attrs.frozen
class Machine:
    """A machine with GPUs, as its ``nvidia-smi`` tells."""

    project: Any
    environment: dict[str, str]
    leases: Path
    until: Callable[..., Any]

    def job(self, run_id: str, **keys: Any) -> Path:
        keys = {"callbacks": ["pretended_cuda:Sees"], **keys}
        return self.project.job(f"{run_id}.json", run_id=run_id, **keys)

    def start(self, run_id: str, *options: str, variables: dict[str, str] | None = None, **keys: Any) -> Any:
        """Start a run, and wait until it trains."""
        job = self.job(run_id, **{**SLOW, **keys})
        command = self.project.start("run", job, *options, **self.environment, **(variables or {}))
        pid = self.project.path / f"{run_id}.pid"
        self.until(lambda: pid.exists() or command.process.poll() is not None, f"the third step of {run_id}")
        assert command.process.poll() is None, command.end()
        return command

    def run(self, run_id: str, *options: str, variables: dict[str, str] | None = None, **keys: Any) -> Any:
        """Run a short job to its end."""
        job = self.job(run_id, **{**BRIEF, **keys})
        return self.project.command("run", job, *options, **self.environment, **(variables or {}))

    def saw(self, run_id: str) -> list[str]:
        """By rank: the device of each, and the GPUs that CUDA would show it."""
        return [path.read_text() for path in sorted(self.project.path.glob(f"{run_id}.*.sees"))]

    def recorded(self, run_id: str) -> list[str]:
        """The devices in the run's log."""
        return self.project.run(run_id).events[0]["devices"]

    def unleased(self, run_id: str) -> list[dict[str, Any]]:
        """The warnings in the run's log that its device is not leased."""
        return [event for event in self.project.run(run_id).events if event.get("code") == "device.unleased"]


@pytest.fixture
def machine(own_project: Callable[..., Any], tmp_path: Path, until: Callable[..., Any]) -> Machine:
    """A machine with two GPUs."""
    project = own_project()
    shutil.copy(HERE / "pretended_cuda.py", project.path)
    tools, leases = tmp_path / "tools", tmp_path / "leases"
    tools.mkdir()
    command = tools / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 0, GPU-aaaa\necho 1, GPU-bbbb\n")
    command.chmod(0o755)
    environment = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "HOSTCORE_DEVICES_DIR": str(leases)}
    return Machine(project, environment, leases, until)


def is_waiting(command: Any, leases: Path) -> bool:
    """Whether a command has the folder of the leases open."""
    try:
        descriptors = list(Path(f"/proc/{command.process.pid}/fd").iterdir())
        return any(one.is_symlink() and one.readlink() == leases for one in descriptors)
    except OSError:  # it has closed one meanwhile, or has ended
        return False


def end(*commands: Any) -> None:
    for command in commands:
        command.signal(signal.SIGTERM)
    for command in commands:
        assert command.end().code == 75


class TestTwoRunsAtOnce:
    def test_each_has_a_gpu_of_its_own_and_a_third_is_refused(self, machine: Machine) -> None:
        first, second = machine.start("a"), machine.start("b")
        third = machine.run("c", "--json")
        assert third.code == 2
        (error,) = third.json["errors"]
        assert (error["code"], error["pointer"]) == ("device.busy", "/device")
        assert f"cuda:0 is held by run a (process {first.process.pid})" in error["message"]
        assert f"cuda:1 is held by run b (process {second.process.pid})" in error["message"]
        assert "--devices cpu" in error["hint"] and "share_devices=true" in error["hint"]
        assert not machine.project.run("c").path.exists()
        assert (machine.saw("a"), machine.saw("b")) == (["cuda:0 of 0"], ["cuda:0 of 1"])
        assert (machine.recorded("a"), machine.recorded("b")) == (["cuda:0"], ["cuda:1"])
        log = machine.project.run("b")
        started = machine.until(lambda: [one for one in log.events if one["event"] == "run_started"], "the log of b")
        assert started[0]["device"] == "cuda:1", "one name in all of a log"
        assert machine.run("on-the-cpu", device="cpu").code == 0
        end(first)
        assert machine.run("d").code == 0
        assert machine.recorded("d") == ["cuda:0"]
        end(second)

    def test_two_ranks_take_both_and_see_both(self, machine: Machine) -> None:
        both = machine.start("a", "--devices", "auto:2")
        assert machine.saw("a") == ["cuda:0 of 0,1", "cuda:1 of 0,1"]
        assert machine.recorded("a") == ["cuda:0", "cuda:1"]
        refused = machine.run("b")
        assert (refused.code, "0 of 2 GPUs are free" in refused.err) == (2, True)
        end(both)
        one = machine.start("c")
        refused = machine.run("d", "--devices", "auto:2")
        assert (refused.code, "1 of 2 GPUs is free, and the job asks for 2" in refused.err) == (2, True)
        end(one)

    def test_a_device_that_is_named_is_refused_while_another_run_holds_it(self, machine: Machine) -> None:
        first = machine.start("a", "--devices", "cuda:1")
        assert machine.saw("a") == ["cuda:0 of 1"]
        for options in ([], ["--detach"]):
            refused = machine.run("b", "--devices", "cuda:1", *options)
            assert refused.code == 2
            assert "cuda:1 is held by run a" in refused.err
        assert not machine.project.run("b").path.exists()
        found = machine.project.command("doctor", "--json", **machine.environment).json["checks"]
        (held,) = [one for one in found if one["name"] == "accelerators.held"]
        assert held["finding"] == f"cuda:1 by run a (process {first.process.pid})"
        assert held["details"] == {"cuda:0": None, "cuda:1": "a"}
        assert machine.run("c", "--devices", "cuda:0").code == 0
        assert machine.run("d").code == 0
        assert machine.recorded("d") == ["cuda:0"], "the first that is free"
        end(first)

    def test_a_device_can_be_shared_on_purpose(self, machine: Machine) -> None:
        alone = machine.start("a", "--devices", "cuda:0")
        shared = machine.start("b", "--devices", "cuda:0", share_devices=True)
        assert machine.saw("b") == ["cuda:0 of 0"]
        end(alone)
        end(shared)
        sharing = machine.start("c", "--devices", "cuda:0", share_devices=True)
        assert machine.run("d", "--devices", "cuda:0").code == 2, "it has not meant to share"
        assert machine.run("e", "--devices", "cuda:0", share_devices=True).code == 0
        end(sharing)


class TestTheEndOfALease:
    def test_a_device_is_free_when_the_worker_of_a_killed_supervisor_is_gone(self, machine: Machine) -> None:
        killed = machine.start("a", "--devices", "cuda:0")
        worker = machine.project.run("a").worker_pid
        os.kill(worker, signal.SIGSTOP)
        killed.process.kill()
        killed.end()
        with (machine.leases / "GPU-aaaa.lease").open() as lease, pytest.raises(BlockingIOError):
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        job = machine.job("b", **{**BRIEF, "device": "cuda:0"})
        after = machine.project.start("run", job, **machine.environment)
        machine.until(lambda: is_waiting(after, machine.leases) or after.process.poll() is not None, "the next run")
        os.kill(worker, signal.SIGCONT)  # it notices, and ends
        said = after.end()
        assert said.code == 0, said
        assert not Path(f"/proc/{worker}/exe").exists()

    def test_a_file_without_a_lock_means_nothing(self, machine: Machine) -> None:
        machine.leases.mkdir()
        process = {"host": "vm", "boot_id": "", "pid": os.getpid(), "start_time": 0}
        (machine.leases / "GPU-aaaa.lease").write_text(json.dumps({"run_id": "old", "process": process}))
        (machine.leases / "GPU-bbbb.lease").write_bytes(b"\x00\xffno JSON")
        keys = {"callbacks": ["pretended_cuda:Sees", "small_trainer:FailOnce"], "max_restarts": 1, "max_steps": 4}
        assert machine.run("a", "--devices", "cuda:0", **keys).code == 0
        devices = [event["devices"] for event in machine.project.run("a").events if event["event"] == "run_submitted"]
        assert devices == [["cuda:0"], ["cuda:0"]], "a restart keeps the device"

    def test_a_hook_that_prefers_the_cpu_leaves_the_device_to_others(self, machine: Machine) -> None:
        first = machine.start("a", callbacks=["pretended_cuda:PrefersTheCpu"])
        assert (machine.saw("a"), machine.recorded("a")) == (["cpu of 0"], ["cpu"])
        assert machine.run("b", "--devices", "auto:2").code == 0
        end(first)


class TestWhatTheMachineHas:
    def test_a_process_that_may_see_one_gpu_takes_no_other(self, machine: Machine) -> None:
        visible = {"CUDA_VISIBLE_DEVICES": "1"}
        first = machine.start("a", variables=visible)
        assert (machine.saw("a"), machine.recorded("a")) == (["cuda:0 of 1"], ["cuda:0"])
        assert machine.run("b", variables=visible).code == 2
        assert machine.run("c", "--devices", "cuda:1").code == 2, "the same GPU by its other name"
        assert machine.run("d", "--devices", "cuda:0").code == 0
        end(first)

    @pytest.mark.parametrize(("devices", "told"), [("cuda:5", "no device 'cuda:5'"), ("auto:3", "there are 2")])
    def test_what_is_not_there_is_refused(self, machine: Machine, devices: str, told: str) -> None:
        refused = machine.run("a", "--devices", devices)
        assert (refused.code, told in refused.err, "cuda:0, cuda:1, cpu" in refused.err) == (2, True, True)

    def test_without_gpus_auto_means_ranks_on_the_cpu(self, machine: Machine) -> None:
        said = machine.run("a", "--devices", "auto:2", variables={"CUDA_VISIBLE_DEVICES": ""})
        assert (said.code, machine.recorded("a")) == (0, ["cpu", "cpu"])
        assert not machine.leases.exists()

    def test_a_folder_that_cannot_be_used_is_one_clear_error(self, machine: Machine) -> None:
        machine.leases.write_text("a file")
        refused = machine.run("a", "--json")
        (error,) = refused.json["errors"]
        assert (refused.code, error["code"], error["file"]) == (2, "device.leases", str(machine.leases))
        assert "HOSTCORE_DEVICES_DIR" in error["hint"]
        assert machine.run("b", device="cpu").code == 0

    def test_a_driver_that_does_not_answer_is_told_by_a_run_on_a_gpu(self, machine: Machine) -> None:
        command = Path(machine.environment["PATH"].partition(os.pathsep)[0], "nvidia-smi")
        command.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed because of the driver'\nexit 9\n")
        assert machine.run("a").code == 0
        (warning,) = machine.unleased("a")
        assert "NVIDIA-SMI has failed because of the driver" in warning["message"]
        assert machine.run("b", device="cpu").code == 0
        assert machine.unleased("b") == []


def test_ranks_without_a_loopback_device_are_refused_before_they_begin(project) -> None:
    alone = ("unshare", "--net")
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system allows no network namespaces")
    job = project.path / "deaf.json"
    job.write_text(
        json.dumps({"run_id": "deaf", "trainer": BRIEF["trainer"], "max_steps": 2, "devices": ["cpu", "cpu"]})
    )
    command = [*alone, COMMAND, "run", str(job), "--json"]
    done = subprocess.run(command, cwd=project.path, env=project.environment, capture_output=True, check=False)
    assert done.returncode == 2, done.stderr
    (error,) = json.loads(done.stdout)["errors"]
    assert (error["code"], error["pointer"]) == ("worker.start", "/devices")
    assert "127.0.0.1 cannot be reached" in error["message"]
    assert not project.run("deaf").path.exists()
