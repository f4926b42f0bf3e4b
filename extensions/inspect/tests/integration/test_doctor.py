"""``hostcore doctor`` on this machine as it is, and with parts of it broken."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

HOSTCORE = [sys.executable, "-P", "-m", "hostcore"]
TRAINER = """
from hostcore_hookspecs import StepResult

class Trainer:
    def setup(self): pass
    def configure(self): return {}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self): return StepResult(metrics={})
    def state_dict(self): return {}
    def load_state_dict(self): pass
"""
JOB = {"trainer": "idle:Trainer", "dataset": {"source": "mock"}, "run_id": "try", "terminal": False}


def doctor(folder: Path, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    (folder / "idle.py").write_text(TRAINER)
    (folder / "job.json").write_text(json.dumps(JOB))
    around = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
    return subprocess.run(
        [*HOSTCORE, "doctor", *arguments],
        cwd=folder,
        env={**around, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def checks(answer: "subprocess.CompletedProcess[str]") -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(answer.stdout)["checks"]}


def test_a_machine_that_works_computes_on_every_device_and_adds_up_over_ranks(tmp_path: Path) -> None:
    answer = doctor(tmp_path, "job.json", "--json")
    found = checks(answer)
    assert {name: one["finding"] for name, one in found.items() if one["status"] == "failed"} == {}
    assert (answer.returncode, json.loads(answer.stdout)["ok"]) == (0, True)
    products = found["device.cpu"]["details"]["products"]
    assert {one["status"] for one in products.values()} == {"right"}
    assert [one["wrong"] for one in found["ranks.gloo"]["details"]["sums"]] == [0, 0]
    assert found["disk.write"]["details"]["commit_seconds"] > 0
    assert found["job"]["status"] == "ok"
    # It leaves nothing behind; the bytecode is Python's.
    assert {file.name for file in tmp_path.iterdir()} - {"__pycache__"} == {"idle.py", "job.json"}


@pytest.fixture
def torch_that(site: Any) -> Callable[[str], dict[str, str]]:
    """Installs another torch, first on the path; the variables with which it is found."""

    def install(does: str) -> dict[str, str]:
        site.install("torch", version="2.99", modules={"torch/__init__.py": does}, entry_points="")
        return {"PYTHONPATH": site.environment["PYTHONPATH"]}

    return install


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("raise ImportError('libcudart.so.12: cannot open')", "ImportError: libcudart.so.12: cannot open"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("version = None", "AttributeError"),
    ],
)
def test_a_torch_that_is_broken_is_told_and_where_it_is(
    tmp_path: Path, torch_that: Callable, does: str, says: str
) -> None:
    answer = doctor(tmp_path, "job.json", "--json", **torch_that(does))
    found = checks(answer)
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    assert (found["torch"]["status"], says in found["torch"]["finding"]) == ("failed", True)
    assert str(tmp_path / "site/torch/__init__.py") in found["torch"]["hint"]
    assert found["job"]["finding"] == "not checked, since torch failed"


def test_a_torch_that_hangs_does_not_hang_doctor(tmp_path: Path, torch_that: Callable) -> None:
    does = (
        f"import os, threading\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\nthreading.Event().wait()"
    )
    variables = torch_that(does)
    for seconds in (3, 12, 48):  # until Python comes as far as to torch, on a machine that is busy
        answer = doctor(tmp_path, "--timeout", str(seconds), **variables)
        if (tmp_path / "pid").exists():
            break
    assert answer.returncode == 1
    assert f"no answer within {seconds} s (while importing torch)" in answer.stdout
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_doctor_that_is_killed_leaves_no_process_behind(tmp_path: Path, torch_that: Callable) -> None:
    pid = tmp_path / "pid"
    does = f"""
        import os, threading
        with open({str(tmp_path / "draft")!r}, "w") as file:
            file.write(str(os.getpid()))
        os.rename({str(tmp_path / "draft")!r}, {str(pid)!r})
        threading.Event().wait()
    """
    variables = {**os.environ, **torch_that(does)}
    process = subprocess.Popen([*HOSTCORE, "doctor"], cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: pid.exists() or process.poll() is not None, "torch to be imported")
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not _runs(int(pid.read_text())), "the probe to end")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second, when it goes between opening and reading
        return False


def test_a_runs_folder_that_cannot_be_written_fails(tmp_path: Path, torch_that: Callable) -> None:
    (tmp_path / "file").touch()
    variables = {**torch_that("raise ImportError"), "HOSTCORE_RUNS_DIR": str(tmp_path / "file/runs")}
    answer = doctor(tmp_path, "--json", **variables)
    found = checks(answer)["disk.write"]
    assert answer.returncode == 1
    assert (found["status"], "Not a directory" in found["finding"]) == ("failed", True)
    assert "HOSTCORE_RUNS_DIR=" in found["hint"]


OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    mount = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="mounting in a namespace is not allowed here")
def test_a_disk_that_is_full_fails(tmp_path: Path, torch_that: Callable) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = 'mount -t tmpfs -o size=1M tmpfs "$1"; shift; exec "$@"'
    answer = subprocess.run(
        [*OWN_MOUNTS, "sh", "-ec", script, "sh", str(disk), *HOSTCORE, "doctor", "--json"],
        env={**os.environ, **torch_that("raise ImportError"), "HOSTCORE_RUNS_DIR": str(disk)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = checks(answer)
    assert answer.returncode == 1
    assert "No space left on device" in found["disk.write"]["finding"]
    assert found["disk.write"]["hint"].startswith("make room")
    assert (found["disk.space"]["status"], found["disk.kind"]["status"]) == ("failed", "warning")
